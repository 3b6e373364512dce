"""Reads TensorBoard's event files without TensorBoard: records with their checksums, protocol buffers by their wire
format. Written from the formats' descriptions, with no code in common with the writer; its CRC works on polynomials."""
import struct


def crc32c(data):
    """The remainder of the message's polynomial, bit by bit: no table, no reflected arithmetic."""
    reflect = lambda value, bits: int(format(value, f"0{bits}b")[::-1], 2)
    message = int.from_bytes(bytes(reflect(byte, 8) for byte in data), "big") << 32
    message ^= 0xFFFFFFFF << (8 * len(data))  # the register starts with ones
    divisor = 0x11EDC6F41
    for bit in range(message.bit_length() - 1, 31, -1):
        if message >> bit & 1:
            message ^= divisor << (bit - 32)
    return reflect(message, 32) ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        (length,), (length_crc,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        body, (body_crc,) = data[at + 12:at + 12 + length], struct.unpack_from("<I", data, at + 12 + length)
        assert masked(crc32c(data[at:at + 8])) == length_crc, "length"
        assert masked(crc32c(body)) == body_crc, "data"
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """{field number: [values]} of one message; bytes stay bytes."""
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert kind == 2, f"wire type {kind}"
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        found.setdefault(tag >> 3, []).append(value)
    return found


def read(path):
    """[(wall time, step, tag, value)] of all scalars; checks the version that stands first."""
    with open(path, "rb") as file:
        events = [fields(body) for body in records(file.read())]
    assert events[0][3] == [b"brain.Event:2"], events[0]
    points = []
    for event in events[1:]:
        for summary in event[5]:
            for value in fields(summary)[1]:
                inner = fields(value)
                points.append((event[1][0], event.get(2, [0])[0], inner[1][0].decode(), inner[2][0]))
    return points
