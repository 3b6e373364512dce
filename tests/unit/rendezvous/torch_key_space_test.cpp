#include "rendezvous/torch_key_space.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/wire.hpp"
#include "unit/rendezvous/torch_requests.hpp"

using namespace dslaunch::rendezvous;

namespace {

struct World {
  explicit World(size_t max_stored_bytes = TorchKeySpace::kMaxStoredBytes)
      : space([this](uint64_t client) { woken.push_back(client); }, max_stored_bytes) {}

  std::vector<uint64_t> woken;
  TorchKeySpace space;

  std::string ask(const std::string& bytes, uint64_t client = 1) {
    torch_wire::RequestReader reader;
    std::string_view input = bytes;
    auto request = reader.next(input);
    REQUIRE(request);
    std::string answer;
    for (const auto& piece : space.handle(client, std::move(*request)).take()) answer += bytes_of(piece);
    return answer;
  }
};

const std::string kReady(1, '\0'), kNotReady(1, '\1'), kStopWaiting(1, '\0'), kCancelled(1, '\1');

}  // namespace

using namespace torch_bytes;

TEST_CASE("values of torch's clients are set, read, counted and removed", "[rendezvous][torch_key_space]") {
  World world;
  const std::string key("\x00/\xff", 3), value(70000, '\0');
  CHECK(world.ask(set(key, value)).empty());
  CHECK(world.ask(get(key)) == text(value));
  CHECK(world.ask(get("missing")) == text(""));
  CHECK(world.ask(append("a", "x")).empty());
  CHECK(world.ask(append("a", "y")).empty());
  CHECK(world.ask(multi_set({"b", "1", "c", ""})).empty());
  CHECK(world.ask(multi_get({"a", "missing", "b", "c"})) == texts({"xy", "", "1", ""}));
  CHECK(world.ask(multi_get({})).empty());
  CHECK(world.ask(num_keys()) == number(4));
  CHECK(world.ask(check({"a", "c"})) == kReady);
  CHECK(world.ask(check({"a", "missing"})) == kNotReady);
  CHECK(world.ask(check({})) == kReady);
  CHECK(world.ask(erase(key)) == number(1));
  CHECK(world.ask(erase(key)) == number(0));
  CHECK(world.ask(num_keys()) == number(3));
  CHECK(world.ask(list_keys()).size() == 8 + 3 * (8 + 1));
  CHECK(world.ask(ping(0xdeadbeef)) == number(0xdeadbeef, 4));
}

TEST_CASE("compare_set answers as torch's server does, also for a missing key", "[rendezvous][torch_key_space]") {
  World world;
  CHECK(world.ask(compare_set("k", "x", "z")) == text("x"));
  CHECK(world.ask(check({"k"})) == kNotReady);
  CHECK(world.ask(compare_set("k", "", "x")) == text("x"));
  CHECK(world.ask(compare_set("k", "", "y")) == text("x"));
  CHECK(world.ask(compare_set("k", "x", "y")) == text("y"));
  CHECK(world.ask(compare_set("new", "", "")) == text(""));
  CHECK(world.ask(check({"new"})) == kReady);
}

TEST_CASE("add counts in decimal, reads as strtoll does and wraps around", "[rendezvous][torch_key_space]") {
  World world;
  CHECK(world.ask(add("n", 5)) == number(5));
  CHECK(world.ask(add("n", -7)) == number(static_cast<uint64_t>(-2)));
  CHECK(world.ask(get("n")) == text("-2"));
  world.ask(set("n", " +5 apples"));
  CHECK(world.ask(add("n", 1)) == number(6));
  world.ask(set("n", "9223372036854775807"));
  CHECK(world.ask(add("n", 1)) == number(uint64_t{1} << 63));
  for (const char* nonsense : {"", "x1", "+-5", " ", "+", "9223372036854775808"}) {
    world.ask(set("n", nonsense));
    CHECK_THROWS_AS(world.ask(add("n", 1)), wire::WireError);
  }
}

TEST_CASE("a wait ends when the last of its keys is there", "[rendezvous][torch_key_space]") {
  World world;
  world.ask(set("a", "1"));
  CHECK(world.ask(wait({"a"})) == kStopWaiting);
  CHECK(world.ask(wait({})) == kStopWaiting);
  CHECK(world.ask(wait({"a", "b", "c", "c"}), 7).empty());
  world.ask(set("c", ""));
  CHECK(world.woken.empty());
  world.ask(add("b", 1));
  CHECK(world.woken == std::vector<uint64_t>{7});
  world.ask(set("b", "again"));
  CHECK(world.woken.size() == 1);
}

TEST_CASE("every kind of setting ends waits", "[rendezvous][torch_key_space]") {
  for (const auto& setting : {set("k", "v"), add("k", 1), append("k", "v"), multi_set({"k", "v"}),
                              compare_set("k", "", "v"), push("k", "v")}) {
    World world;
    world.ask(wait({"k"}), 3);
    world.ask(setting);
    CHECK(world.woken == std::vector<uint64_t>{3});
  }
}

TEST_CASE("a cancelled wait, or one of a closed client, is not answered", "[rendezvous][torch_key_space]") {
  World world;
  world.ask(wait({"k"}), 2);
  world.ask(wait({"k"}), 3);
  world.ask(wait({"k"}), 4);
  CHECK(world.ask(cancel_wait(), 2) == kCancelled);
  CHECK(world.ask(cancel_wait(), 9) == kCancelled);
  world.space.forget(4);
  world.ask(set("k", "v"));
  CHECK(world.woken == std::vector<uint64_t>{3});
}

TEST_CASE("ten thousand clients that wait for one key are all answered", "[rendezvous][torch_key_space]") {
  World world;
  for (uint64_t client = 1; client <= 10000; ++client) world.ask(wait({"k", "other"}), client);
  for (uint64_t client = 1; client <= 10000; client += 2) world.ask(cancel_wait(), client);
  world.ask(set("k", "v"));
  CHECK(world.woken.empty());
  world.ask(set("other", "v"));
  CHECK(world.woken.size() == 5000);
}

TEST_CASE("queues keep their order and are separate from keys", "[rendezvous][torch_key_space]") {
  World world;
  CHECK(world.ask(pop("q")) == number(0));
  CHECK(world.ask(queue_length("q")) == number(0));
  world.ask(push("q", "1"));
  world.ask(push("q", ""));
  CHECK(world.ask(queue_length("q")) == number(2));
  CHECK(world.ask(num_keys()) == number(0));
  CHECK(world.ask(check({"q"})) == kReady);
  CHECK(world.ask(wait({"q"})) == kStopWaiting);
  CHECK(world.ask(get("q")) == text(""));
  CHECK(world.ask(erase("q")) == number(0));
  CHECK(world.ask(pop("q")) == number(2) + text("1"));
  CHECK(world.ask(pop("q")) == number(1) + text(""));
  CHECK(world.ask(pop("q")) == number(0));
  CHECK(world.ask(check({"q"})) == kNotReady);
}

TEST_CASE("a push wakes one waiter, in order of arrival", "[rendezvous][torch_key_space]") {
  World world;
  for (uint64_t client : {5, 4, 6}) world.ask(wait({"q"}), client);
  world.ask(push("q", "1"));
  CHECK(world.woken == std::vector<uint64_t>{5});
  world.ask(push("q", "2"));
  CHECK(world.woken == std::vector<uint64_t>{5, 4});
}

TEST_CASE("a small request cannot ask for a huge answer, nor fill the memory", "[rendezvous][torch_key_space]") {
  World world{200u << 20};
  world.ask(set("v", std::string(48u << 20, 'v')));
  CHECK(world.ask(multi_get({"v", "v"})).size() == 16 + (96u << 20));
  CHECK_THROWS_AS(world.ask(multi_get({"v", "v", "v", "v", "v"})), wire::WireError);
  auto fill = [&] {
    for (int i = 0; i < 100; ++i) world.ask(push("q", std::string(48u << 20, 'v')));
  };
  CHECK_THROWS_AS(fill(), wire::WireError);
  CHECK(world.ask(queue_length("q")) == number(3));
}

TEST_CASE("what the store spends on each entry counts, so that empty values do not fill the memory",
          "[rendezvous][torch_key_space]") {
  World world{1u << 20};
  auto fill = [&] {
    for (int i = 0; i < 100000; ++i) world.ask(push("", ""));
  };
  CHECK_THROWS_AS(fill(), wire::WireError);
}
