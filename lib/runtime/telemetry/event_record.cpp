#include "runtime/telemetry/event_record.hpp"

#include <array>
#include <bit>

#include "base/byte_fields.hpp"

namespace dslaunch::runtime {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78U : 0U);
    table[byte] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

// TensorFlow's masking: a CRC over bytes that contain CRCs would be weak.
uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8U;
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
void put_tag(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | type);
}
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_time) {
  std::string out;
  put_tag(out, 1, kFixed64);
  out += ByteWriter().u64(std::bit_cast<uint64_t>(wall_time)).take();
  return out;
}

// `point`: of the event's summary.
std::string event_with(double wall_time, int64_t step, std::string_view point) {
  std::string summary;
  put_bytes(summary, 1, point);
  std::string out = event_at(wall_time);
  put_tag(out, 2, kVarint);
  put_varint(out, static_cast<uint64_t>(step));
  put_bytes(out, 5, summary);
  return out;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string event_record(std::string_view event) {
  const std::string length = ByteWriter().u64(event.size()).take();
  return ByteWriter().bytes(length).u32(masked(crc32c(length))).bytes(event).u32(masked(crc32c(event))).take();
}

std::string encode_version_event(double wall_time) {
  std::string out = event_at(wall_time);
  put_bytes(out, 3, "brain.Event:2");
  return out;
}

std::string encode_scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string point;
  put_bytes(point, 1, tag);
  put_tag(point, 2, kFixed32);
  point += ByteWriter().u32(std::bit_cast<uint32_t>(value)).take();
  return event_with(wall_time, step, point);
}

std::string encode_text_event(double wall_time, int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr uint64_t kString = 7;
  std::string dim, shape, tensor, plugin, metadata, point;
  put_tag(dim, 1, kVarint);
  put_varint(dim, 1);  // of size 1
  put_bytes(shape, 2, dim);
  put_tag(tensor, 1, kVarint);
  put_varint(tensor, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, markdown);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(point, 1, tag);
  put_bytes(point, 8, tensor);
  put_bytes(point, 9, metadata);
  return event_with(wall_time, step, point);
}

}  // namespace dslaunch::runtime
