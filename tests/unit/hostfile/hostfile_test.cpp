#include "hostfile/hostfile.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;
using Catch::Contains;

namespace {

std::vector<Entry> parse(std::string_view text) {
  return parse_hostfile(text, "hosts");
}

// The message of the refusal; fails the test when the text is accepted.
std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    return error.what();
  }
  FAIL("accepted: " << text);
  return {};
}

}  // namespace

TEST_CASE("hosts come in the order of the file with their slots", "[hostfile]") {
  auto entries = parse("# pool\n\nnode2 slots=4   # fast\r\n  node1\tslots=2 max_slots=2\n\nnode3 slots=08#x");
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].host.name == "node2");
  CHECK(entries[0].host.slots == std::vector<int>{0, 1, 2, 3});
  CHECK(entries[0].line == 3);
  CHECK(entries[0].slots_stated);
  CHECK(entries[1].host.name == "node1");
  CHECK(entries[1].host.slots == std::vector<int>{0, 1});
  CHECK(entries[2].host.slots.size() == 8);
}

TEST_CASE("a byte order mark and a missing last newline do not matter", "[hostfile]") {
  CHECK(parse("\xef\xbb\xbfnode1 slots=1").at(0).host.name == "node1");
}

TEST_CASE("user, port and IPv6 addresses are read", "[hostfile]") {
  auto entries = parse("alice@node1:2222 slots=1\n[fe80::1%eth0]:22 slots=2\nbob@[::1]\n10.0.0.7 port=2200 slots=1\n");
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].host.user == "alice");
  CHECK(entries[0].host.name == "node1");
  CHECK(entries[0].host.port == 2222);
  CHECK(entries[1].host.name == "fe80::1%eth0");
  CHECK(entries[1].host.port == 22);
  CHECK(entries[2].host.user == "bob");
  CHECK(entries[2].host.name == "::1");
  CHECK_FALSE(entries[2].host.port);
  CHECK(entries[3].host.name == "10.0.0.7");
  CHECK(entries[3].host.port == 2200);
}

TEST_CASE("a range gives each of its hosts the line's settings", "[hostfile]") {
  auto entries = parse("eve@n[01-03,7]:23 slots=8\n");
  REQUIRE(entries.size() == 4);
  CHECK(entries[3].host.name == "n7");
  for (const auto& entry : entries) {
    CHECK(entry.host.user == "eve");
    CHECK(entry.host.port == 23);
    CHECK(entry.host.slots.size() == 8);
  }
}

TEST_CASE("a bare name has one slot and counts up when it is repeated", "[hostfile]") {
  auto entries = parse("a\nb\na\na\n");
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].host.slots == std::vector<int>{0, 1, 2});
  CHECK(entries[0].slots_stated);
  CHECK(entries[1].host.slots == std::vector<int>{0});
  CHECK_FALSE(entries[1].slots_stated);
}

TEST_CASE("a port that may be a number of slots is explained", "[hostfile]") {
  const auto note = [](std::string_view text) { return note_doubtful_ports(parse(text), "hosts"); };
  CHECK(note("a\ngpu1:8\nu@gpu[2-3]:8\n") ==
        "hostfile hosts:2: 'gpu1:8' is SSH port 8 and one slot (likewise 2 more hosts): for 8 slots write 'gpu1 "
        "slots=8', "
        "and 'port=8' if the port is meant");
  CHECK(note("a:22\nb:2222\nc:8 slots=4\nd port=8\n[fe80::1]:8\n").empty());
}

TEST_CASE("a host that is repeated with slots is refused", "[hostfile]") {
  CHECK_THAT(refusal("a slots=2\nb slots=2\na slots=2\n"), Contains("hosts:3:1: host 'a' is already listed on line 1"));
  CHECK_THAT(refusal("a\na slots=2\n"), Contains("hosts:2:1"));
  CHECK_THAT(refusal("a slots=2\na\n"), Contains("hosts:2:1"));
  CHECK_THAT(refusal("n[1-3] slots=2\n n2 slots=1\n"), Contains("hosts:2:2: host 'n2'"));
  CHECK_THAT(refusal("x@a\ny@a\n"), Contains("another user or port"));
}

TEST_CASE("a host in other letters is the same host", "[hostfile]") {
  CHECK_THAT(refusal("a slots=2\nA slots=2\n"), Contains("hosts:2:1: host 'A' is already listed on line 1, as 'a'"));
  CHECK_THAT(refusal("N[1-3].x slots=2\nn2.X. slots=1\n"),
             Contains("host 'n2.X.' is already listed on line 1, as 'N2.x'"));
  auto entries = parse("Node\nnode\n");
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].host.name == "Node");
  CHECK(entries[0].host.slots == std::vector<int>{0, 1});
}

TEST_CASE("each mistake is named with line and column", "[hostfile]") {
  CHECK_THAT(refusal("a slots=0\n"), Contains("hosts:1:9: slots=0"));
  CHECK_THAT(refusal("a slots=4x\n"), Contains("hosts:1:9: slots='4x' is not a whole number"));
  CHECK_THAT(refusal("a slots=-1\n"), Contains("hosts:1:9: slots=-1 is not between 1 and 4096"));
  CHECK_THAT(refusal("a slots=\n"), Contains("hosts:1:9: slots='' is not a whole number"));
  CHECK_THAT(refusal("a slots=99999999999999999999\n"), Contains("not a whole number"));
  CHECK_THAT(refusal("a slots=5000\n"), Contains("not between 1 and 4096"));
  CHECK_THAT(refusal("a slots=2 slots=3\n"), Contains("hosts:1:17: slots is given twice"));
  CHECK_THAT(refusal("a slot=2\n"), Contains("hosts:1:3: unknown setting 'slot' (did you mean 'slots'?)"));
  CHECK_THAT(refusal("a b slots=2\n"), Contains("hosts:1:3: unexpected 'b'"));
  CHECK_THAT(refusal("slots=2\n"), Contains("hosts:1:1: expected a host name, got 'slots=2'"));
  CHECK_THAT(refusal("a slots=4 max_slots=2\n"), Contains("slots=4 is more than max_slots=2"));
  CHECK_THAT(refusal("a:0 slots=1\n"), Contains("hosts:1:3: port '0'"));
  CHECK_THAT(refusal("a:70000\n"), Contains("port '70000'"));
  CHECK_THAT(refusal("a:22 port=23\n"), Contains("hosts:1:11: the port is given twice"));
  CHECK_THAT(refusal("fe80::1 slots=1\n"), Contains("in brackets"));
  CHECK_THAT(refusal("a:2,b:2\n"), Contains("hosts:1:1: 'a:2,b:2' names several hosts") && Contains("'a slots=2'"));
  CHECK_THAT(refusal("u@n[1,2],b slots=4\n"), Contains("hosts:1:3: 'n[1,2],b' names several hosts"));
  CHECK_THAT(refusal("[fe80::zz] slots=1\n"), Contains("hosts:1:2: 'fe80::zz' is not an IPv6 address"));
  CHECK_THAT(refusal("[fe80::1]x slots=1\n"), Contains("hosts:1:10: unexpected 'x' after the address"));
  CHECK_THAT(refusal("@a slots=1\n"), Contains("'' is not a user name"));
  CHECK_THAT(refusal("-oX@a slots=1\n"), Contains("is not a user name"));
  CHECK_THAT(refusal("u@ slots=1\n"), Contains("hosts:1:3: the host has no name"));
  CHECK_THAT(refusal("-oProxyCommand slots=1\n"), Contains("begins with '-'"));
  CHECK_THAT(refusal("n[1-3 slots=1\n"), Contains("hosts:1:2: '[' is never closed"));
  CHECK_THAT(refusal("a;b slots=1\n"), Contains("'a;b' is not a host name"));
  CHECK_THAT(refusal(std::string_view("a\0b slots=1\n", 12)), Contains("a\\x00b"));
  CHECK_THAT(refusal("a =3\n"), Contains("unexpected '=3'"));
}

TEST_CASE("an overlong host name is refused and shown shortened", "[hostfile]") {
  auto message = refusal(std::string(100000, 'n') + " slots=2");
  CHECK_THAT(message, Contains("100000 characters"));
  CHECK(message.size() < 300);
}

TEST_CASE("blanks around the equals sign give one message, not three", "[hostfile]") {
  std::string message = refusal("a slots = 2\n");
  CHECK_THAT(message, Contains("hosts:1:3: blanks are not allowed around '=': write 'slots=N'"));
  CHECK_THAT(message, !Contains("unexpected"));
  CHECK_THAT(refusal("a slots= 2\n"), !Contains("unexpected"));
  CHECK_THAT(refusal("a slots =2\n"), !Contains("unexpected"));
}

TEST_CASE("several errors are reported at once, and a long list is truncated", "[hostfile]") {
  std::string message = refusal("a slots=0\nb slots=2\nc slots=x\nd e\n");
  CHECK_THAT(message, Contains("hosts:1:") && Contains("hosts:3:") && Contains("hosts:4:") && !Contains("hosts:2:"));
  std::string flood;
  for (int i = 0; i < 50; ++i) flood += "h slots=0\n";
  CHECK_THAT(refusal(flood), Contains("and 30 more"));
  for (int i = 0; i < 200; ++i) flood += "h slots=0\n";
  CHECK_THAT(refusal(flood), Contains("and at least 80 more"));
}

// Each of these took an hour or more memory than a machine has.
TEST_CASE("parsing a hostile hostfile stops early", "[hostfile]") {
  std::string ranges, mistakes;
  for (int i = 0; i < 200'000; ++i) ranges += "n[1-65536]\n", mistakes += "n[1-65536] slots=x\n";
  CHECK_THAT(refusal(ranges), Contains("hosts:17:1: more than 1048576 slots in all"));
  CHECK_THAT(refusal(mistakes), Contains("and at least 80 more"));
  CHECK_THAT(refusal("n[1-65536]" + std::string(8 << 20, 'x')), Contains("hosts:1:11: more than 255 characters"));
  std::string words;
  for (int i = 0; i < 1'000'000; ++i) words += "x ";
  CHECK_THAT(refusal(words), Contains("and 80 more"));
}

TEST_CASE("a hostfile without a host is refused", "[hostfile]") {
  CHECK_THAT(refusal(""), Contains("names no host"));
  CHECK_THAT(refusal("# nothing\n \n"), Contains("names no host"));
}

TEST_CASE("a hostfile that cannot be read is exit code 66 with its path", "[hostfile]") {
  for (std::string path : {"/nonexistent/hosts", "/"}) {
    try {
      read_hostfile(path);
      FAIL("read " << path);
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kNoInput);
      CHECK_THAT(error.what(), Contains("cannot read the hostfile " + path + ": "));
    }
  }
}

TEST_CASE("an endless hostfile is refused", "[hostfile]") {
  try {
    read_hostfile("/dev/zero");
    FAIL("read /dev/zero");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Contains("cannot read the hostfile /dev/zero: ") && Contains("bytes"));
  }
}

TEST_CASE("reads a hostfile from disk", "[hostfile]") {
  test::TempDir dir;
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "node" + std::to_string(i) + " slots=8\n";  // larger than one read
  auto entries = read_hostfile(dir.write("hostfile", text));
  REQUIRE(entries.size() == 10000);
  CHECK(entries.back().host.name == "node9999");
}
