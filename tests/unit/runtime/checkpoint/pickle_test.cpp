#include "runtime/checkpoint/pickle/pickle_reader.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::pickle;
using test::expect_error;

namespace {

std::string unhex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}

std::unique_ptr<const Document> read(std::string_view bytes, const Limits& limits = {}) {
  return read_pickle({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "file 'x'", limits);
}

void refused(std::string_view bytes, const std::string& word, const Limits& limits = {}) {
  expect_error(ExitCode::kBadInput, {"file 'x'", "byte", word}, [&] { read(bytes, limits); });
}

using namespace std::string_literals;

// Python 3.11's pickle.dumps(object, protocol) for 2 to 4 (5 differs from 4 in one byte) of
// {"none": None, "yes": True, "no": False, "small": 7, "minus": -300, "big": 2**40, "huge": 2**70, "float": 1.5,
//  "text": "größe", "bytes": b"\x00\xff", "list": [1, [2]], "tuple": (1, (2, 3), ()), "set": {4},
//  "ordered": collections.OrderedDict([("b", 1), ("a", 2)])}
const char* const kSample[] = {
    "80027d71002858040000006e6f6e6571014e580300000079657371028858020000006e6f7103895805000000736d616c6c71044b075805"
    "0000006d696e757371054ad4feffff580300000062696771068a0600000000000158040000006875676571078a09000000000000000040"
    "5805000000666c6f61747108473ff8000000000000580400000074657874710958070000006772c3b6c39f65710a580500000062797465"
    "73710b635f636f646563730a656e636f64650a710c580300000000c3bf710d58060000006c6174696e31710e86710f5271105804000000"
    "6c69737471115d7112284b015d71134b02616558050000007475706c6571144b014b024b03867115298771165803000000736574711763"
    "5f5f6275696c74696e5f5f0a7365740a71185d71194b046185711a52711b58070000006f726465726564711c63636f6c6c656374696f6e"
    "730a4f726465726564446963740a711d2952711e28580100000062711f4b0158010000006171204b0275752e",
    "80037d71002858040000006e6f6e6571014e580300000079657371028858020000006e6f7103895805000000736d616c6c71044b075805"
    "0000006d696e757371054ad4feffff580300000062696771068a0600000000000158040000006875676571078a09000000000000000040"
    "5805000000666c6f61747108473ff8000000000000580400000074657874710958070000006772c3b6c39f65710a580500000062797465"
    "73710b430200ff710c58040000006c697374710d5d710e284b015d710f4b02616558050000007475706c6571104b014b024b0386711129"
    "87711258030000007365747113636275696c74696e730a7365740a71145d71154b046185711652711758070000006f7264657265647118"
    "63636f6c6c656374696f6e730a4f726465726564446963740a71192952711a28580100000062711b4b01580100000061711c4b0275752e",
    "800495ea000000000000007d94288c046e6f6e65944e8c0379657394888c026e6f94898c05736d616c6c944b078c056d696e7573944ad4"
    "feffff8c03626967948a060000000000018c0468756765948a090000000000000000408c05666c6f617494473ff80000000000008c0474"
    "657874948c076772c3b6c39f65948c05627974657394430200ff948c046c697374945d94284b015d944b0261658c057475706c65944b01"
    "4b024b0386942987948c03736574948f94284b04908c076f726465726564948c0b636f6c6c656374696f6e73948c0b4f72646572656444"
    "696374949394295294288c0162944b018c0161944b0275752e",
};

}  // namespace

TEST_CASE("one object reads the same from every protocol", "[runtime][checkpoint][pickle]") {
  for (int protocol = 2; protocol <= 5; ++protocol) {
    INFO("protocol " << protocol);
    std::string bytes = unhex(kSample[std::min(protocol, 4) - 2]);
    if (protocol == 5) bytes[1] = 5;
    const auto document = read(bytes);
    const Value& root = document->root();
    REQUIRE(root.entries.size() == 14);
    CHECK(root.find("none")->is(Kind::kNone));
    CHECK(root.find("yes")->boolean);
    CHECK(root.find("no")->is(Kind::kBool));
    CHECK(root.find("small")->as_integer() == 7);
    CHECK(root.find("minus")->as_integer() == -300);
    CHECK(root.find("big")->as_integer() == int64_t{1} << 40);
    CHECK(root.find("huge")->as_number() == 1180591620717411303424.0);
    CHECK(root.find("float")->as_number() == 1.5);
    CHECK(root.find("text")->text == "größe");
    CHECK(root.find("bytes")->text == "\0\xff"s);
    CHECK(root.find("bytes")->is(Kind::kBytes));
    CHECK(root.find("list")->items[1]->items[0]->integer == 2);
    CHECK(root.find("tuple")->items.size() == 3);
    CHECK(root.find("tuple")->items[1]->items[1]->integer == 3);
    CHECK(root.find("set")->is(Kind::kSet));
    CHECK(root.find("set")->items[0]->integer == 4);
    CHECK(root.find("ordered")->entries[0].first->text == "b");
    CHECK(root.find("ordered")->find("a")->integer == 2);
    CHECK(root.find("absent") == nullptr);
  }
}

TEST_CASE("unknown classes become records of name, arguments and state", "[runtime][checkpoint][pickle]") {
  // An object of a.b C made by NEWOBJ with (1,), its state {"x": 2.0, "y": <enum a E(3)>}, and then itself in a list.
  const auto document = read(
      "\x80\x02"
      "ca.b\nC\nK\x01\x85\x81q\x00}(X\x01\x00\x00\x00xG\x40\x00\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00y"
      "ca\nE\nK\x03\x85Rub."s);
  const Value& root = document->root();
  CHECK(root.is(Kind::kObject));
  CHECK(root.class_name() == "a.b.C");
  CHECK(root.arguments->items[0]->integer == 1);
  CHECK(root.attribute("x")->as_number() == 2.0);
  CHECK(root.attribute("y")->as_integer() == 3);
  CHECK(root.attribute("z") == nullptr);
}

TEST_CASE("persistent ids, cycles and numpy scalars are data", "[runtime][checkpoint][pickle]") {
  CHECK(read("\x80\x02X\x01\x00\x00\x00kQ."s)->root().arguments->text == "k");
  CHECK(read("\x80\x02"
             "ccollections\nOrderedDict\n)R."s)
            ->root()
            .is(Kind::kDict));
  const auto cycle = read("]q\x00h\x00"s + "a.");
  CHECK(cycle->root().items[0] == &cycle->root());
  // numpy.float64(0.5) by protocol 4
  const auto scalar = read(
      "\x80\x04\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93\x8c\x05numpy\x8c\x05"s
      "dtype\x93\x8c\x02"s
      "f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"s
      "C\x08\x00\x00\x00\x00\x00\x00\xe0\x3f\x86R."s);
  CHECK(scalar->root().as_number() == 0.5);
}

TEST_CASE("numpy's scalars of every width are numbers", "[runtime][checkpoint][pickle]") {
  const auto scalar = [](const std::string& dtype, const std::string& bytes) {
    const std::string size(1, static_cast<char>(bytes.size()));
    return read("\x80\x04\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93\x8c\x05numpy\x8c\x05"s + "dtype\x93\x8c\x02"s +
                dtype + "\x85R"s + "C"s + size + bytes + "\x86R."s)
        ->root()
        .as_number();
  };
  CHECK(scalar("f4", "\x00\x00\xc0\xbf"s) == -1.5);
  CHECK(scalar("i8", "\xfe\xff\xff\xff\xff\xff\xff\xff"s) == -2);
  CHECK(scalar("i4", "\xfd\xff\xff\xff"s) == -3);
  CHECK(scalar("u8", "\x00\x00\x00\x00\x01\x00\x00\x00"s) == 4294967296.0);
  CHECK(scalar("u4", "\xff\xff\xff\xff"s) == 4294967295.0);
  CHECK(scalar("b1", "\x01"s) == 1);
  CHECK_FALSE(scalar("c8", "\x00\x00\x00\x00\x00\x00\x00\x00"s));
  CHECK_FALSE(scalar("i4", "\x01"s));  // too few bytes
}

TEST_CASE("nothing is executed: a call of os.system is a record", "[runtime][checkpoint][pickle]") {
  const auto document = read("cos\nsystem\nX\x10\x00\x00\x00touch /tmp/owned\x85R."s);
  CHECK(document->root().class_name() == "os.system");
  CHECK(document->root().arguments->items[0]->text == "touch /tmp/owned");
}

TEST_CASE("what is not sound is refused with its byte", "[runtime][checkpoint][pickle]") {
  refused("", "too early");
  refused("\x80\x02}", "too early");
  refused("\x80\x09.", "protocol 9");
  refused("a.", "empty");
  refused("K\x01K\x02u.", "mark");
  refused("(K\x01u.", "empty");
  refused("}(K\x01u.", "key without a value");
  refused("K\x01K\x02"s + "a.", "not a list");
  refused("h\x05.", "value 5");
  refused("\xff.", "0xff");
  refused("\x82\x01.", "0x82");
  refused("X\xff\xff\xff\xffq.", "too early");
  refused("\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "too early");
  refused("\x8b\xff\xff\xff\xff.", "negative");
  refused("I1\n.", "protocol 0 or 1");
  refused("\x80\x01.", "protocol 1");
  refused("cno newline", "end");
  refused("K\x01K\x02\x93.", "global");
}

TEST_CASE("every cut of a sound pickle is refused", "[runtime][checkpoint][pickle]") {
  const std::string bytes = unhex(kSample[0]);
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS_AS(read(std::string_view(bytes).substr(0, size)), UserError);
  }
}

TEST_CASE("a small pickle does not become a large value", "[runtime][checkpoint][pickle]") {
  refused(std::string(20'000, '('), "deeper");
  std::string lists(1000, ']');
  lists.push_back('.');
  CHECK_THROWS_AS(read(lists, {.max_values = 100}), UserError);
  CHECK_THROWS_AS(read(lists, {.max_bytes = 100}), UserError);
  // A list of 1000 wrapped a thousand times.
  std::string wraps = "](" + std::string(1000, 'N') + "eq" + "\x00"s + "0cbuiltins\nset\nq\x01"s + "0";
  for (int i = 0; i < 1000; ++i) wraps += "h\x01h\x00\x85R0"s;
  refused(wraps + "N.", "repeats", {.max_values = 100'000});
  // Nested a million deep without marks: read, and given up again without recursion.
  std::string deep = "N";
  for (int i = 0; i < 1'000'000; ++i) deep += '\x85';
  CHECK(read(deep + ".")->num_values() == 1'000'001);
}
