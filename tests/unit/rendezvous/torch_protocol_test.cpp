#include "rendezvous/torch_protocol.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/wire.hpp"
#include "unit/rendezvous/torch_requests.hpp"

using namespace dslaunch::rendezvous;
using torch_wire::Request;
using torch_wire::RequestReader;
using torch_wire::Type;

namespace {

const std::string kBinary("\x00\xff/\n\x00", 5);

std::vector<Request> read_in_pieces(const std::string& bytes, size_t piece) {
  RequestReader reader;
  std::vector<Request> out;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    auto input = std::string_view(bytes).substr(begin, piece);
    while (auto request = reader.next(input)) out.push_back(std::move(*request));
    CHECK(input.empty());
  }
  return out;
}

}  // namespace

TEST_CASE("a request is read whatever pieces it comes in", "[rendezvous][torch_protocol]") {
  struct Case {
    std::string bytes;
    Request expected;
  };
  const std::vector<Case> cases{
      {torch_bytes::validate(), {Type::kValidate, {}, {}, 0x3C85F7CE}},
      {torch_bytes::set(kBinary, ""), {Type::kSet, {kBinary}, {""}, 0}},
      {torch_bytes::compare_set("k", "", kBinary), {Type::kCompareSet, {"k"}, {"", kBinary}, 0}},
      {torch_bytes::get(""), {Type::kGet, {""}, {}, 0}},
      {torch_bytes::add("n", -7), {Type::kAdd, {"n"}, {}, static_cast<uint64_t>(-7)}},
      {torch_bytes::check({}), {Type::kCheck, {}, {}, 0}},
      {torch_bytes::wait({"a", kBinary, ""}), {Type::kWait, {"a", kBinary, ""}, {}, 0}},
      {torch_bytes::num_keys(), {Type::kNumKeys, {}, {}, 0}},
      {torch_bytes::erase("k"), {Type::kDelete, {"k"}, {}, 0}},
      {torch_bytes::append("k", kBinary), {Type::kAppend, {"k"}, {kBinary}, 0}},
      {torch_bytes::multi_get({"a", "b"}), {Type::kMultiGet, {"a", "b"}, {}, 0}},
      {torch_bytes::multi_set({"a", "1", "b", ""}), {Type::kMultiSet, {"a", "b"}, {"1", ""}, 0}},
      {torch_bytes::cancel_wait(), {Type::kCancelWait, {}, {}, 0}},
      {torch_bytes::ping(0xfffefdfc), {Type::kPing, {}, {}, 0xfffefdfc}},
      {torch_bytes::push("q", kBinary), {Type::kQueuePush, {"q"}, {kBinary}, 0}},
      {torch_bytes::pop("q"), {Type::kQueuePop, {"q"}, {}, 0}},
      {torch_bytes::queue_length("q"), {Type::kQueueLength, {"q"}, {}, 0}},
      {torch_bytes::list_keys(), {Type::kListKeys, {}, {}, 0}},
  };
  std::string all;
  for (const auto& each : cases) all += each.bytes;
  for (size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{9}, all.size()}) {
    auto read = read_in_pieces(all, piece);
    REQUIRE(read.size() == cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(i, piece);
      CHECK(read[i].type == cases[i].expected.type);
      CHECK(read[i].keys == cases[i].expected.keys);
      CHECK(read[i].values == cases[i].expected.values);
      CHECK(read[i].number == cases[i].expected.number);
    }
  }
}

TEST_CASE("malformed requests are refused before they are stored", "[rendezvous][torch_protocol]") {
  using namespace torch_bytes;
  auto refused = [](const std::string& bytes) {
    RequestReader reader;
    std::string_view input = bytes;
    try {
      while (reader.next(input)) continue;
    } catch (const wire::WireError&) {
      return true;
    }
    return false;
  };
  CHECK(refused(type(18)));
  CHECK(refused(type(255)));
  CHECK(refused(type(3) + number(torch_wire::kMaxKeyBytes + 1)));
  CHECK_FALSE(refused(get(std::string(torch_wire::kMaxKeyBytes, 'k'))));
  CHECK(refused(type(1) + text("k") + number(torch_wire::kMaxValueBytes + 1)));
  CHECK_FALSE(refused(type(1) + text("k") + number(torch_wire::kMaxValueBytes)));
  CHECK(refused(type(6) + number(torch_wire::kMaxKeys + 1)));
  CHECK(refused(type(6) + number(~uint64_t{0})));
  CHECK(refused(type(1) + number(~uint64_t{0})));
}

TEST_CASE("a request of many values within their own limits is still bounded", "[rendezvous][torch_protocol]") {
  using namespace torch_bytes;
  RequestReader reader;
  auto feed = [&](const std::string& bytes) {
    std::string_view input = bytes;
    return reader.next(input).has_value();
  };
  const std::string value = text(std::string(torch_wire::kMaxValueBytes, 'v'));
  CHECK_FALSE(feed(type(11) + number(4)));
  CHECK_FALSE(feed(text("a") + value));
  CHECK_FALSE(feed(text("b") + value));
  CHECK_THROWS_AS(feed(text("c") + number(torch_wire::kMaxValueBytes)), wire::WireError);
}
