#include "comm/watchdog.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "base/byte_fields.hpp"
#include "support/memory_store.hpp"
#include "support/message_log.hpp"

using namespace dslaunch;
using namespace dslaunch::comm;
using test::MessageLog;
using namespace std::chrono_literals;

namespace {

// A store that fails the first questions of each kind.
class StumblingStore : public test::MemoryStore {
 public:
  explicit StumblingStore(std::function<void()> fail) : fail_(std::move(fail)) {}
  void set(const std::string& key, const std::string& value, Deadline deadline) override {
    if (sets_++ < 3) fail_();
    MemoryStore::set(key, value, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    if (gets_++ < 3) fail_();
    return MemoryStore::try_get(key, deadline);
  }
  std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                              Deadline deadline) override {
    const auto value = MemoryStore::compare_and_set(key, expected, desired, deadline);
    if (swaps_++ < 1) fail_();  // with the answer on its way
    return value;
  }

 private:
  const std::function<void()> fail_;
  std::atomic<int> sets_{0}, gets_{0}, swaps_{0};
};

// A member of a group of which only the calls are looked at.
class Caller : public Communicator {
 public:
  explicit Caller(MessageLog& heard) : aborts(heard) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Buffer, ReduceOp) override {}
  void reduce_scatter(ConstBuffer, Buffer, ReduceOp) override {}
  void all_gather(ConstBuffer, Buffer) override {}
  void all_to_all(ConstBuffer, Buffer) override {}
  void broadcast(Buffer, int) override {}
  void exchange(std::span<const Outgoing>, std::span<const Incoming>) override {}
  void barrier() override {}
  void wait_for_completion() override {}
  void wait_until(const std::function<bool()>&) override {}
  void abort(const std::string& reason) override { aborts.add(reason); }
  CallState calls() const override {
    CallState state = made.state();
    state.messages = messages.counts();
    return state;
  }

  MessageLog& aborts;
  HostCalls made;
  ExchangeCounter messages;
};

// One rank of a world of two: a group, a watch over it, and what that says and does.
struct Rank {
  Rank(int rank, rendezvous::Store& store, std::chrono::milliseconds limit, MessageLog& warnings, MessageLog& ends)
      : group(ends) {
    Watchdog::Options options{.rank = rank, .world_size = 2, .host = "node1"};
    options.times = HangTimes(limit);
    options.warn = [&warnings](const std::string& text) { warnings.add(text); };
    watch = std::make_unique<Watchdog>(options, store);
    watch->add({&group, "world", {0, 1}});
  }
  Caller group;
  std::unique_ptr<Watchdog> watch;
};

}  // namespace

TEST_CASE("a long wait is told once, with what the absent rank is at, and that it is over", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank waits(0, store, 2s, warnings, ends), busy(1, store, 2s, warnings, ends);
  busy.watch->set_activity("the data of step 7");
  {
    const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
    const auto text = warnings.wait_for("has been waiting");
    CHECK_THAT(text, Catch::StartsWith("all_reduce of 4 float32 has been waiting") &&
                         Catch::Contains("rank 1 (node1, process") && Catch::Contains("busy with the data of step 7") &&
                         Catch::Contains("The job ends when the wait reaches 2.0 s"));
    { const HostCalls::Scope late(busy.group.made, "all_reduce of 4 float32"); }
  }
  CHECK_THAT(warnings.wait_for("completed after"), Catch::StartsWith("all_reduce of 4 float32: completed after"));
  CHECK(warnings.count() == 2);
  CHECK(ends.count() == 0);
}

TEST_CASE("a rank that freezes inside a collective is named", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  RankReport frozen;  // the last that rank 1 said, from inside the call
  frozen.host = "node2";
  frozen.pid = 4711;
  frozen.heartbeat = 9;
  frozen.last_calls["world"] = 1;
  store.set("hang/report/1", encode(frozen), Deadline::never());
  Rank waits(0, store, 2s, warnings, ends);
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  CHECK_THAT(warnings.wait_for("has been waiting"),
             Catch::Contains("for rank 1 (node2, process 4711), which has arrived: it "
                             "has stopped reporting"));
}

TEST_CASE("of stages that wait for each other's messages, the one that holds up all is named once", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  std::vector<std::unique_ptr<Caller>> groups;
  std::vector<std::unique_ptr<Watchdog>> watches;
  for (int rank = 0; rank < 3; ++rank) {
    Watchdog::Options options{.rank = rank, .world_size = 3, .host = "node1"};
    options.times = HangTimes(3s);
    options.warn = [&, rank](const std::string& text) { warnings.add(std::to_string(rank) + ": " + text); };
    groups.push_back(std::make_unique<Caller>(ends));
    watches.push_back(std::make_unique<Watchdog>(options, store));
    watches.back()->add({groups.back().get(), "pipe.0", {0, 1, 2}});
  }
  watches[1]->set_activity("forward 3 of stage 1");
  watches[2]->set_activity("forward 4 of stage 2");
  {
    // Stage 0 receives from stage 1, which receives from stage 2, which is busy.
    const HostCalls::Scope first(groups[0]->made, "receive from member 1", 1, {groups[0]->messages.count(1, 0)});
    const HostCalls::Scope second(groups[1]->made, "receive from member 2", 1, {groups[1]->messages.count(2, 1)});
    const auto text = warnings.wait_for("has been waiting");
    CHECK_THAT(text, Catch::StartsWith("1: receive from member 2 (forward 3 of stage 1) has been waiting") &&
                         Catch::Contains("for rank 2 (node1, process") &&
                         Catch::Contains("busy with forward 4 of stage 2"));
    warnings.wait_for_nth(2);  // the next report of the same wait
    groups[2]->messages.count(2, 1);
  }
  CHECK_THAT(warnings.wait_for("completed after"), Catch::StartsWith("1: receive from member 2"));
  CHECK(ends.count() == 0);
}

TEST_CASE("waits of a few usual steps are not reported", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank waits(0, store, 1h, warnings, ends), slow(1, store, 1h, warnings, ends);
  CHECK(waits.watch->report_threshold() == 20s);
  waits.watch->add_step(10s);
  CHECK(waits.watch->report_threshold() == 50s);
}

TEST_CASE("a rank that is waited for is heard while what it is at changes all the time", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank waits(0, store, 2s, warnings, ends), busy(1, store, 2s, warnings, ends);
  std::jthread micro_batches([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) busy.watch->set_activity("step 7");
  });
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  CHECK_THAT(warnings.wait_for("has been waiting"), Catch::Contains("busy with step 7"));
}

TEST_CASE("a wait that lasts as long as the limit ends the job", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank waits(0, store, 400ms, warnings, ends), busy(1, store, 400ms, warnings, ends);
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  const auto text = ends.wait_for("all_reduce");
  CHECK_THAT(text, Catch::Contains("rank 1 (node1, process") &&
                       Catch::Contains("The limit of a wait for other ranks is 0.4 s"));
  REQUIRE(waits.watch->verdict());
  CHECK(waits.watch->verdict()->code() == ExitCode::kTimeout);
  CHECK(ends.wait_for_nth(2) == text);  // the other rank's watchdog takes it over
  REQUIRE(busy.watch->verdict());
  CHECK(busy.watch->verdict()->code() == ExitCode::kTimeout);
}

TEST_CASE("a wait for a part that a rank has not done is ended as one in a collective", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank waits(0, store, 2s, warnings, ends), busy(1, store, 2s, warnings, ends);
  busy.watch->set_activity("step 7");
  for (Rank* rank : {&waits, &busy}) rank->watch->mark_done("files", 1);
  waits.watch->mark_done("files", 2);
  // The rank itself waits elsewhere for the first one, which is no deadlock: its thread in the background goes on.
  const HostCalls::Scope call(busy.group.made, "all_reduce of 4 float32");
  const Watchdog::PartWait part(*waits.watch, "files", 2, "the checkpoint of step 20");
  CHECK_THAT(warnings.wait_for("the checkpoint of step 20 has been waiting"), Catch::Contains("for rank 1 (node1"));
  CHECK_THAT(ends.wait_for("has been waiting"), Catch::Contains("The limit of a wait for other ranks is 2.0 s"));
}

TEST_CASE("a wait ends the job also when the rank that tells of it says nothing any more", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  const uint64_t number = 1, times_told = 3, stopped_rank = 1;
  store.set("hang/told/world", ByteWriter().u64(number).u64(times_told).u64(stopped_rank).take(), Deadline::never());
  Rank waits(0, store, 1s, warnings, ends);
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  CHECK_THAT(ends.wait_for("has been waiting"), Catch::Contains("for rank 1: it has not arrived"));
}

TEST_CASE("who has left a meeting was there", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank early(0, store, 2s, warnings, ends), late(1, store, 2s, warnings, ends);
  { const Watchdog::BarrierWait here(*early.watch, "x", "the set-up", ""); }
  const Watchdog::BarrierWait there(*late.watch, "x", "the set-up", "");
  CHECK_THAT(warnings.wait_for("has been waiting"), Catch::Contains("although all ranks have arrived"));
}

TEST_CASE("who comes to a meeting again waits for those that do not", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank comes(0, store, 2s, warnings, ends), stays_away(1, store, 2s, warnings, ends);
  {
    const Watchdog::BarrierWait here(*comes.watch, "x", "its forward", ""),
        there(*stays_away.watch, "x", "its forward", "");
    CHECK_THAT(warnings.wait_for("has been waiting"), Catch::Contains("although all ranks have arrived"));
  }
  const Watchdog::BarrierWait again(*comes.watch, "x", "its next forward", "");
  CHECK_THAT(warnings.wait_for("its next forward has been waiting"), Catch::Contains("for rank 1 (node1"));
}

TEST_CASE("a wait with a limit of its own is told of, and not ended for lasting long", "[comm][hang]") {
  test::MemoryStore store, store_of_others;
  MessageLog warnings, ends, warnings_of_others, ends_of_others;
  Rank comes(0, store, 400ms, warnings, ends), busy(1, store, 400ms, warnings, ends);
  const Watchdog::BarrierWait here(*comes.watch, "x", "the resume", "", 1h);
  // A wait without one that begins later is ended.
  Rank waits(0, store_of_others, 400ms, warnings_of_others, ends_of_others);
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  CHECK(ends_of_others.wait_for("all_reduce") != "");
  CHECK_THAT(warnings.wait_for_nth(1), Catch::StartsWith("the resume has been waiting") &&
                                           Catch::Contains("for rank 1 (node1") &&
                                           Catch::EndsWith("The job ends when the wait reaches 60 min"));
  CHECK(ends.count() == 0);
  CHECK_FALSE(comes.watch->verdict());
}

TEST_CASE("ranks that wait for each other are ended long before the limit", "[comm][hang]") {
  test::MemoryStore store;
  MessageLog warnings, ends;
  Rank a(0, store, 2s, warnings, ends), b(1, store, 2s, warnings, ends);
  SECTION("a meeting and a collective, with the meeting's advice") {
    const Watchdog::BarrierWait barrier(*a.watch, "x", "forward of unit 'x'", "use stage 1");
    const HostCalls::Scope call(b.group.made, "all_reduce of 4 float32");
    const auto text = ends.wait_for("wait for each other");
    CHECK_THAT(text, Catch::Contains("rank 0 is waiting in forward of unit 'x' for rank 1") &&
                         Catch::Contains("rank 1 is waiting in all_reduce of 4 float32 for rank 0") &&
                         Catch::EndsWith("use stage 1"));
    const auto& who = a.watch->verdict() ? a : b;
    CHECK(who.watch->verdict()->code() == ExitCode::kBadInput);
  }
  SECTION("not those that have met") {
    const Watchdog::BarrierWait here(*a.watch, "x", "its forward", ""), there(*b.watch, "x", "its forward", "");
    CHECK_THAT(warnings.wait_for("has been waiting"), Catch::Contains("although all ranks have arrived"));
    CHECK(ends.count() == 0);
  }
}

TEST_CASE("a store that gives no answer for a while is asked again", "[comm][hang]") {
  StumblingStore store([] { throw TimeoutError("the store did not answer in time"); });
  MessageLog warnings, ends;
  Rank waits(0, store, 2s, warnings, ends), busy(1, store, 2s, warnings, ends);
  busy.watch->set_activity("step 7");
  const HostCalls::Scope call(waits.group.made, "all_reduce of 4 float32");
  CHECK_THAT(warnings.wait_for("has been waiting"), Catch::Contains("busy with step 7"));
}

TEST_CASE("a watch that cannot go on leaves its rank alone", "[comm][hang]") {
  MessageLog failures;
  StumblingStore store([&] {
    failures.add("failed");
    throw std::bad_alloc();
  });
  MessageLog warnings, ends;
  const Rank rank(0, store, 2s, warnings, ends);
  CHECK(failures.wait_for("failed") == "failed");
}
