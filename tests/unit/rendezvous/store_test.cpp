#include "rendezvous/store.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "ports/held_port.hpp"
#include "rendezvous/wire.hpp"
#include "unit/rendezvous/store_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;
using Catch::Contains;

namespace {

// Collects what on_peer_lost tells, and waits for it. The callbacks may outlive it: stores go after it.
class Losses {
 public:
  void listen_to(Store& store) {
    store.on_peer_lost([state = state_](const LostRank& lost) {
      std::lock_guard lock(state->mutex);
      state->lost.push_back(lost);
      state->changed.notify_all();
    });
  }
  std::vector<LostRank> wait_for(size_t count) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, std::chrono::seconds(20), [&] { return state_->lost.size() >= count; });
    return state_->lost;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<LostRank> lost;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

template <class F>
std::string message_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("ranks see each other's keys, counters and barriers", "[rendezvous][store]") {
  StoreWorld world(2);
  auto first = world.join(0, 2), second = world.join(1, 2);
  CHECK(world.server->joined_ranks() == std::vector<int>{0, 1});
  CHECK_FALSE(second->try_get("k", soon()));
  first->set("k", std::string("a\0b", 3), soon());
  CHECK(second->get("k", soon()) == std::string("a\0b", 3));
  CHECK(second->try_get("k", soon()) == std::string("a\0b", 3));
  CHECK(first->add("n", 2, soon()) == 2);
  CHECK(second->add("n", -5, soon()) == -3);
  CHECK(first->compare_and_set("c", "", "x", soon()) == "x");
  CHECK(second->compare_and_set("c", "", "y", soon()) == "x");
  CHECK(first->erase("k", soon()) == 1);
  CHECK_FALSE(second->try_get("k", soon()));
  for (int round = 0; round < 50; ++round) {
    auto other = std::async(std::launch::async, [&] { second->barrier("b", 2, soon()); });
    first->barrier("b", 2, soon());
    other.get();
  }
}

TEST_CASE("the largest value passes and one byte more does not", "[rendezvous][store]") {
  StoreWorld world(1);
  auto store = world.join(0, 1);
  std::string value(wire::kMaxValueBytes, 'v');
  store->set("large", value, soon());
  CHECK(store->get("large", soon()) == value);
  CHECK_THROWS_AS(store->set("larger", value + "v", soon()), InternalError);
  CHECK_THROWS_AS(store->set(std::string(wire::kMaxKeyBytes + 1, 'k'), "", soon()), InternalError);
  CHECK(store->get("large", soon()).size() == value.size());
}

TEST_CASE("a wait is answered while other calls of the same store go on", "[rendezvous][store]") {
  StoreWorld world(1);
  auto store = world.join(0, 1);
  auto waiting = std::async(std::launch::async, [&] { return store->get("later", soon()); });
  for (int i = 0; i < 100; ++i) store->add("n", 1, soon());
  store->set("later", "now", soon());
  CHECK(waiting.get() == "now");
}

TEST_CASE("time-outs name the key, the barrier and the missing ranks", "[rendezvous][store]") {
  StoreWorld world(3);
  auto store = world.join(0, 3);
  CHECK_THAT(message_of([&] { store->get("nothing", in_ms(50)); }),
             Contains("'nothing'") && Contains("ranks 1, 2 have not arrived (rank 1 on hostX never connected"));
  CHECK_THAT(message_of([&] { store->barrier("meet", 3, in_ms(50)); }),
             Contains("'meet'") && Contains("ranks 1, 2 have not arrived"));
  CHECK_THROWS_AS(store->get("nothing", in_ms(1)), TimeoutError);
}

TEST_CASE("a rank whose connection ends is announced to all others", "[rendezvous][store]") {
  StoreWorld world(3);
  auto first = world.join(0, 3), second = world.join(1, 3), third = world.join(2, 3);
  Losses at_first, at_second;
  at_first.listen_to(*first);
  at_second.listen_to(*second);
  auto barrier = std::async(std::launch::async, [&] { first->barrier("b", 3, soon()); });
  third.reset();
  for (auto* losses : {&at_first, &at_second}) {
    auto lost = losses->wait_for(1);
    REQUIRE(lost.size() == 1);
    CHECK(lost[0].rank == 2);
    CHECK(lost[0].host == "hostX");
    CHECK(lost[0].reason == "connection closed");
  }
  CHECK_THROWS_AS(barrier.get(), PeerError);
}

TEST_CASE("a late listener is notified of an earlier loss", "[rendezvous][store]") {
  StoreWorld world(2);
  auto first = world.join(0, 2), second = world.join(1, 2);
  second.reset();
  CHECK_THROWS_AS(first->get("never", soon()), PeerError);
  Losses losses;
  losses.listen_to(*first);
  CHECK(losses.wait_for(1).size() == 1);
  auto replaced = world.join(1, 2);
  CHECK(replaced->try_get("k", soon()) == std::nullopt);
}

TEST_CASE("a rank that leaves is no loss, one that reports a failure is, with its reason", "[rendezvous][store]") {
  StoreWorld world(3);
  auto first = world.join(0, 3), second = world.join(1, 3), third = world.join(2, 3);
  Losses losses;
  losses.listen_to(*first);
  second->leave();
  second.reset();
  third->report_failure("loss is not finite at step 7");
  third.reset();
  auto lost = losses.wait_for(1);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].rank == 2);
  CHECK(lost[0].reason == "loss is not finite at step 7");
  CHECK_THROWS_AS(first->barrier("b", 3, soon()), PeerError);
  CHECK(losses.wait_for(1).size() == 1);
}

TEST_CASE("another job's token is refused with a reason", "[rendezvous][store]") {
  StoreWorld world(2);
  auto env = world.env(0, 2);
  env.token = random_bytes(32);
  CHECK_THAT(message_of([&] { connect_store(env, soon()); }), Contains("belongs to another job"));
  env.token.clear();
  CHECK_THAT(message_of([&] { connect_store(env, soon()); }), Contains("belongs to another job"));
  CHECK(world.server->joined_ranks().empty());
  CHECK_NOTHROW(world.join(0, 2)->set("k", "v", soon()));
}

TEST_CASE("a rank of another world, or a second one, is refused", "[rendezvous][store]") {
  StoreWorld world(2);
  CHECK_THAT(message_of([&] { world.join(0, 4); }), Contains("rank 0 of 4") && Contains("world of 2"));
  auto first = world.join(1, 2);
  CHECK_THAT(message_of([&] { world.join(1, 2); }), Contains("two processes have RANK=1"));
  CHECK(first->add("n", 1, soon()) == 1);
}

TEST_CASE("a store that starts late is waited for, one that never starts is named", "[rendezvous][store]") {
  auto listener = listen_on(0, true);
  uint16_t port = ports::bound_port(listener.get());
  listener.reset();
  LaunchEnv env;
  env.world_size = 2;
  env.rank = 1;
  env.master_port = port;
  CHECK_THAT(message_of([&] { connect_store(env, in_ms(80)); }),
             Contains("127.0.0.1:" + std::to_string(port)) && Contains("Connection refused") && Contains("Rank 0"));

  auto late = std::async(std::launch::async, [&] { return connect_store(env, soon()); });
  LaunchEnv serving = env;
  serving.rank = 0;
  auto first = connect_store(serving, soon());
  auto second = late.get();
  second->set("k", "v", soon());
  CHECK(first->get("k", soon()) == "v");
  second->leave();
  first->leave();
}

TEST_CASE("reports a peer that is not a store", "[rendezvous][store]") {
  auto listener = listen_on(0, true);
  std::thread web([fd = listener.get()] {
    UniqueFd client(::accept(fd, nullptr, nullptr));
    std::string greeting = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    [[maybe_unused]] auto sent = ::write(client.get(), greeting.data(), greeting.size());
    char byte = 0;
    while (::read(client.get(), &byte, 1) > 0) {
    }
  });
  LaunchEnv env;
  env.world_size = 2;
  env.rank = 1;
  env.master_port = ports::bound_port(listener.get());
  CHECK_THAT(message_of([&] { connect_store(env, soon()); }), Contains("is not a dslaunch store"));
  web.join();
}

TEST_CASE("the death of the serving rank is a loss of that rank", "[rendezvous][store][multiproc]") {
  auto listener = listen_on(0, true);
  uint16_t port = ports::bound_port(listener.get());
  LaunchEnv env;
  env.world_size = 2;
  env.master_port = port;
  listener.reset();
  pid_t child = ::fork();
  if (child == 0) {
    try {
      auto store = connect_store(env, soon());
      store->get("die", soon());
    } catch (...) {
    }
    ::kill(::getpid(), SIGKILL);
  }
  env.rank = 1;
  auto store = connect_store(env, soon());
  Losses losses;
  losses.listen_to(*store);
  store->set("die", "now", soon());
  auto lost = losses.wait_for(1);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].rank == 0);
  CHECK_THROWS_AS(store->get("k", soon()), PeerError);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a serving rank that ends without leaving is a loss, one that leaves is not", "[rendezvous][store]") {
  for (bool leaves : {false, true}) {
    LaunchEnv env;
    env.world_size = 2;
    {
      auto listener = listen_on(0, true);
      env.master_port = ports::bound_port(listener.get());
    }
    auto first = connect_store(env, soon());
    env.rank = 1;
    auto second = connect_store(env, soon());
    Losses losses;
    losses.listen_to(*second);
    auto ending = std::async(std::launch::async, [&] {
      if (leaves) first->leave();
      first.reset();
    });
    if (!leaves) {
      auto lost = losses.wait_for(1);
      REQUIRE(lost.size() == 1);
      CHECK(lost[0].rank == 0);
    }
    second->leave();
    second.reset();
    ending.get();
    CHECK(losses.wait_for(0).size() == (leaves ? 0 : 1));
  }
}

TEST_CASE("an orderly end of the server is not a loss", "[rendezvous][store]") {
  StoreWorld world(1);
  auto store = world.join(0, 1);
  Losses losses;
  losses.listen_to(*store);
  world.server.reset();
  CHECK_THAT(message_of([&] { store->get("k", soon()); }), Contains("has ended"));
  CHECK(losses.wait_for(0).empty());
}

TEST_CASE("a world of one needs no port", "[rendezvous][store]") {
  LaunchEnv env;
  auto store = connect_store(env, soon());
  store->set("k", "v", soon());
  CHECK(store->get("k", soon()) == "v");
  CHECK(store->add("n", 3, soon()) == 3);
  CHECK(store->compare_and_set("k", "v", "w", soon()) == "w");
  CHECK((store->erase("k", soon()) == 1 && !store->try_get("k", soon())));
  store->barrier("b", 1, soon());
  CHECK_THAT(message_of([&] { store->get("nothing", in_ms(20)); }), Contains("'nothing'"));
  auto waiting = std::async(std::launch::async, [&] { return store->get("later", soon()); });
  store->set("later", "now", soon());
  CHECK(waiting.get() == "now");
}
