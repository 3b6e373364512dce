"""What a client of torch's TCPStore says, in a fixed order, and what it was answered: printed as JSON by whoever runs it.
Run against two servers, the answers must be the same.

    torch_store_calls.py             against MASTER_ADDR:MASTER_PORT
    torch_store_calls.py --own       against torch's own server, started here for it"""
import datetime
import json
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import torch.distributed as dist  # noqa: E402


def milliseconds(count):
    return datetime.timedelta(milliseconds=count)


class Calls:
    def __init__(self, host, port):
        self.host, self.port = host, port
        self.outcomes = []

    def client(self, timeout_ms=20000):
        return dist.TCPStore(self.host, self.port, is_master=False, timeout=milliseconds(timeout_ms),
                             wait_for_workers=False)

    def note(self, name, call):
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001: every kind is an answer here
            outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if isinstance(outcome, list) and all(isinstance(each, str) for each in outcome):
            outcome = sorted(outcome)
        self.outcomes.append([name, repr(outcome)])

    # ---- through torch's client

    def values(self):
        store = self.client()
        binary = bytes(range(256)) * 3
        self.note("set", lambda: store.set("a", "1"))
        self.note("get", lambda: store.get("a"))
        self.note("set an empty value", lambda: store.set("empty", ""))
        self.note("get an empty value", lambda: store.get("empty"))
        self.note("set the empty key", lambda: store.set("", "value"))
        self.note("get the empty key", lambda: store.get(""))
        self.note("compare_set takes bytes only as text", lambda: store.set("text", "\x00\xe4\u20ac"))
        self.note("get text", lambda: store.get("text"))
        self.note("set any bytes", lambda: store.set("binary", binary.decode("latin-1")))
        self.note("get any bytes", lambda: store.get("binary"))
        self.note("overwrite", lambda: (store.set("a", "2"), store.get("a")))
        self.note("append to a missing key", lambda: (store.append("list", "x"), store.get("list")))
        self.note("append", lambda: (store.append("list", "yz"), store.get("list")))
        self.note("multi_set", lambda: store.multi_set(["m1", "m2"], ["v1", ""]))
        self.note("multi_get", lambda: store.multi_get(["m2", "m1", "a"]))
        self.note("multi_get of nothing", lambda: store.multi_get([]))
        self.note("num_keys", store.num_keys)
        self.note("list_keys", store.list_keys)
        self.note("delete", lambda: store.delete_key("m1"))
        self.note("delete a missing key", lambda: store.delete_key("m1"))
        self.note("num_keys after", store.num_keys)
        self.note("extended", store.has_extended_api)
        self.note("clone", lambda: store.clone().get("a"))
        self.note("key of odd bytes", lambda: (store.set("\n \x00/\u20ac", "v"), store.get("\n \x00/\u20ac")))
        self.note("prefix", lambda: (dist.PrefixStore("p/q", store).set("k", "v"), store.get("p/q/k")))

    def counters(self):
        store = self.client()
        self.note("add to a missing key", lambda: store.add("n", 5))
        self.note("add a negative amount", lambda: store.add("n", -7))
        self.note("add nothing", lambda: store.add("n", 0))
        self.note("a counter's value", lambda: store.get("n"))
        self.note("add to digits that were set", lambda: (store.set("n", "41"), store.add("n", 1)))
        self.note("add beyond 64 bits", lambda: (store.set("big", str(2**63 - 1)), store.add("big", 1)))

    def comparisons(self):
        store = self.client()
        self.note("missing key, something expected", lambda: store.compare_set("c", "x", "y"))
        self.note("it is still missing", lambda: store.check(["c"]))
        self.note("missing key, nothing expected", lambda: store.compare_set("c", "", "x"))
        self.note("as expected", lambda: store.compare_set("c", "x", "y"))
        self.note("not as expected", lambda: store.compare_set("c", "x", "z"))
        self.note("nothing expected, something there", lambda: store.compare_set("c", "", "z"))
        self.note("nothing to nothing", lambda: (store.compare_set("c0", "", ""), store.check(["c0"])))

    def waits(self):
        store = self.client()
        store.set("there", "1")
        self.note("check", lambda: store.check(["there"]))
        self.note("check, one missing", lambda: store.check(["there", "missing"]))
        self.note("check of nothing", lambda: store.check([]))
        self.note("wait", lambda: store.wait(["there"]))
        self.note("wait for nothing", lambda: store.wait([]))
        self.note("wait in vain", lambda: store.wait(["there", "missing"], milliseconds(50)))
        self.note("after a wait in vain", lambda: store.get("there"))
        self.note("wait in vain again", lambda: store.wait(["missing"], milliseconds(50)))
        store.set_timeout(milliseconds(50))
        self.note("get in vain", lambda: store.get("missing"))
        self.note("multi_get in vain", lambda: store.multi_get(["there", "missing"]))
        store.set("missing", "now there")
        self.note("it came after all", lambda: store.get("missing"))

    def wait_for_others(self):
        """Eight clients wait for two keys that a ninth sets, one after the other."""
        setting, got = self.client(), [None] * 8
        ready = threading.Barrier(9)

        def wait(index):
            store = self.client()
            ready.wait()
            store.wait(["late1", "late2"])
            got[index] = store.get("late2")

        threads = [threading.Thread(target=wait, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        ready.wait()
        setting.set("late1", "1")
        setting.add("late2", 7)
        for thread in threads:
            thread.join()
        self.note("eight waited", lambda: got)

    def queues(self):
        store = self.client()
        self.note("length of none", lambda: store.queue_len("q"))
        self.note("pop of none", lambda: store.queue_pop("q", block=False))
        self.note("push", lambda: [store.queue_push("q", value) for value in ("1", "", "3")])
        self.note("length", lambda: store.queue_len("q"))
        self.note("a queue is there", lambda: store.check(["q"]))
        self.note("and is no key", lambda: (store.num_keys(), "q" in store.list_keys()))
        self.note("pop", lambda: [store.queue_pop("q") for _ in range(3)])
        self.note("pop when empty", lambda: store.queue_pop("q", block=False))
        self.note("empty is not there", lambda: store.check(["q"]))
        store.set_timeout(milliseconds(50))
        self.note("pop in vain", lambda: store.queue_pop("q"))
        store.set_timeout(milliseconds(20000))
        other = self.client()
        pusher = threading.Thread(target=lambda: other.queue_push("q", "late"))
        pusher.start()
        self.note("pop waits", lambda: store.queue_pop("q"))
        pusher.join()

    def large(self):
        store = self.client()
        value = "0123456789abcdef" * (1 << 19)  # 8 MiB: the most that torch's own server takes
        self.note("a large value", lambda: (store.set("large", value), store.get("large") == value.encode()))
        key = "k" * 8191  # with torch's own '/' in front the longest
        self.note("a long key", lambda: (store.set(key, "v"), store.get(key)))
        self.note("many keys", lambda: (store.multi_set([f"many{i}" for i in range(5000)], [str(i) for i in range(5000)]),
                                        store.multi_get([f"many{i}" for i in range(5000)])[4999]))

    def breaking_clients(self):
        """Torch's server ends these connections; the next client must find all well."""
        store = self.client()
        store.set("word", "no number")
        self.note("add to a word", lambda: "DistNetworkError" in self.outcome_of(lambda: store.add("word", 1)))
        store = self.client()
        self.note("a key too long", lambda: "Error" in self.outcome_of(lambda: (store.set("k" * 8192, "v"), store.num_keys())))
        vanishing = self.raw_client()
        vanishing.sendall(b"\x06" + struct.pack("<Q", 1) + self.text(b"/never"))
        vanishing.close()
        self.note("the others are well", lambda: (self.client().set("never", "v"), self.client().get("never")))

    def outcome_of(self, call):
        try:
            return repr(call())
        except Exception as error:  # noqa: BLE001
            return type(error).__name__

    # ---- byte by byte

    @staticmethod
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def raw_client(self):
        raw = socket.create_connection((self.host, self.port), timeout=20)
        raw.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE))
        return raw

    def raw_answer(self, request):
        """All bytes that come for it, and whether the connection is still good: a ping marks the end."""
        mark = b"\xfe\xdc\xba\x98"
        raw, answer = self.raw_client(), b""
        try:
            raw.sendall(request + b"\x0d" + mark)
            while not answer.endswith(mark):
                piece = raw.recv(1 << 16)
                if not piece:
                    return answer, "ended"
                answer += piece
        except ConnectionError:
            return answer, "ended"
        finally:
            raw.close()
        return answer[:-4], "open"

    def bytes(self):
        text, count = self.text, lambda number: struct.pack("<Q", number)
        requests = {
            "set, get": b"\x01" + text(b"\x00\xff") + text(b"v\x00") + b"\x03" + text(b"\x00\xff"),
            "get of a missing key": b"\x03" + text(b"r-missing"),
            "compare_set": b"\x02" + text(b"r-c") + text(b"") + text(b"x"),
            "compare_set of a missing key": b"\x02" + text(b"r-c2") + text(b"e") + text(b"x"),
            "add": b"\x04" + text(b"r-n") + struct.pack("<q", -3),
            "add to space, sign, digits, rest": b"\x01" + text(b"r-w") + text(b" +5x") + b"\x04" + text(b"r-w") + count(1),
            "add to nothing": b"\x01" + text(b"r-e") + text(b"") + b"\x04" + text(b"r-e") + count(1),
            "check": b"\x05" + count(2) + text(b"r-n") + text(b"r-missing"),
            "check of nothing": b"\x05" + count(0),
            "wait": b"\x06" + count(1) + text(b"r-n"),
            "wait for nothing": b"\x06" + count(0),
            "wait, cancel": b"\x06" + count(1) + text(b"r-missing") + b"\x0c",
            "cancel alone": b"\x0c",
            "wait twice for one key, set": b"\x06" + count(2) + text(b"r-t") * 2 + b"\x01" + text(b"r-t") + text(b"v"),
            "wait, append": b"\x06" + count(1) + text(b"r-a") + b"\x09" + text(b"r-a") + text(b""),
            "wait, add": b"\x06" + count(1) + text(b"r-b") + b"\x04" + text(b"r-b") + count(1),
            "wait, compare_set": b"\x06" + count(1) + text(b"r-d") + b"\x02" + text(b"r-d") + text(b"") + text(b"x"),
            "wait, push": b"\x06" + count(1) + text(b"r-q") + b"\x0e" + text(b"r-q") + text(b"v"),
            "pop": b"\x0f" + text(b"r-q"),
            "pop of none": b"\x0f" + text(b"r-q"),
            "length": b"\x10" + text(b"r-q"),
            "delete": b"\x08" + text(b"r-n") + b"\x08" + text(b"r-n"),
            "multi_set, multi_get": b"\x0b" + count(2) + text(b"r-1") + text(b"1") + text(b"r-2") + text(b"")
                                    + b"\x0a" + count(3) + text(b"r-1") + text(b"r-missing") + text(b"r-2"),
            "multi_set of nothing": b"\x0b" + count(0),
            "longest key": b"\x03" + text(b"k" * 8192),
            "key too long": b"\x03" + text(b"k" * 8193),
            "too many keys": b"\x05" + count(128 * 1024 + 1),
            "a second validation": b"\x00" + struct.pack("<I", 0x3C85F7CE),
            "an unknown type": b"\x12",
            "another unknown type": b"\xff",
            "num_keys": b"\x07",
        }
        for name, request in requests.items():
            self.note(name, lambda request=request: self.raw_answer(request))

    def all(self):
        for part in (self.values, self.counters, self.comparisons, self.waits, self.wait_for_others, self.queues,
                     self.large, self.breaking_clients, self.bytes):
            part()
        return self.outcomes


def main():
    if "--own" in sys.argv:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        calls = Calls("127.0.0.1", server.port)
    else:
        calls = Calls(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    print("ANSWERS " + json.dumps(calls.all()), flush=True)


if __name__ == "__main__":
    main()
