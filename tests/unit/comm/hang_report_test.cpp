#include "comm/hang_report.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/byte_fields.hpp"

using namespace dslaunch;
using namespace dslaunch::comm;
using namespace std::chrono_literals;

namespace {

constexpr auto kLong = 60s;

std::vector<int> ranks_below(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Of a rank that has made `calls` of the world and is in none.
RankReport busy(uint64_t calls, const std::string& activity, uint64_t heartbeat = 2) {
  RankReport out;
  out.host = "node1";
  out.pid = 77;
  out.heartbeat = heartbeat;
  out.activity = activity;
  out.activity_age = 70s;
  out.last_calls["world"] = calls;
  return out;
}

// Of a rank that is in call `number` of `group`.
RankReport waiting(const std::string& group, uint64_t number, int world_size, uint64_t heartbeat = 2) {
  RankReport out = busy(0, "step 3", heartbeat);
  out.last_calls[group] = number;
  out.waits.push_back({group, number, "all_reduce in group '" + group + "'", {}, ranks_below(world_size), 61s, true});
  return out;
}

// Of a rank in the exchange of messages 'number' with `peers`, both directions; it has begun all of them.
RankReport exchanging(int rank, const std::vector<int>& peers, uint64_t number, bool blocks_host = true) {
  RankReport out = busy(0, "step 3");
  RankWait wait{.group = "pipe.0 exchanges of rank " + std::to_string(rank), .number = 1, .what = "exchange"};
  wait.age = 61s;
  wait.blocks_host = blocks_host;
  const auto add = [&](int from, int to, int peer) {
    const auto sequence = "pipe.0 " + std::to_string(from) + ">" + std::to_string(to);
    out.last_calls[sequence] = number;
    wait.messages.push_back({sequence, number, peer});
  };
  for (const int peer : peers) {
    add(rank, peer, peer);
    add(peer, rank, peer);
  }
  out.waits.push_back(wait);
  return out;
}

// The same reports a while ago.
RankReports earlier(RankReports reports) {
  for (auto& report : reports) {
    if (report) report->heartbeat -= 1;
  }
  return reports;
}

std::vector<int> held_in(const RankReports& reports) {
  return find_deadlocked(earlier(reports), reports, kLong);
}

const StateOf kUnknown = [](const RankReport&) { return std::nullopt; };

}  // namespace

TEST_CASE("a report arrives as it was sent", "[comm][hang]") {
  RankReport sent = waiting("gather", 7, 3);
  sent.place = "stage 1";
  sent.start_ticks = 123456789012;
  sent.last_calls["hpz.1"] = 5;
  sent.waits.push_back({"world", 9, "barrier", "do something else", {2, 0}, 90s, false, true});
  const RankReport read = decode(encode(sent));
  CHECK(read.host == "node1");
  CHECK(read.place == "stage 1");
  CHECK(read.pid == 77);
  CHECK(read.start_ticks == 123456789012);
  CHECK(read.heartbeat == 2);
  CHECK(read.activity == "step 3");
  CHECK(read.activity_age == 70s);
  CHECK(read.last_calls == sent.last_calls);
  REQUIRE(read.waits.size() == 2);
  CHECK(read.waits[0].members == std::vector<int>{0, 1, 2});
  CHECK(read.waits[1].group == "world");
  CHECK(read.waits[1].number == 9);
  CHECK(read.waits[1].what == "barrier");
  CHECK(read.waits[1].advice == "do something else");
  CHECK(read.waits[1].members == std::vector<int>{2, 0});
  CHECK(read.waits[1].age == 90s);
  CHECK_FALSE(read.waits[1].blocks_host);
  CHECK(read.waits[1].is_on_device);
  CHECK(read.waits[0].messages.empty());
  CHECK(read.waits[0].blocks_host);
  CHECK_FALSE(read.waits[0].is_on_device);
  CHECK_THROWS_AS(decode(encode(sent).substr(0, 40)), WireError);
}

TEST_CASE("who has not made a call is absent from it", "[comm][hang]") {
  const RankReports reports{waiting("world", 5, 4), busy(4, "step 3"), busy(6, "step 4"), std::nullopt};
  CHECK(missing_from(reports[0]->waits[0], 0, reports) == std::vector<int>{1, 3});
}

TEST_CASE("an exchange arrives in a report with its messages", "[comm][hang]") {
  const RankReport read = decode(encode(exchanging(1, {2}, 7)));
  REQUIRE(read.waits.size() == 1);
  REQUIRE(read.waits[0].messages.size() == 2);
  CHECK(read.waits[0].messages[0].sequence == "pipe.0 1>2");
  CHECK(read.waits[0].messages[1].sequence == "pipe.0 2>1");
  CHECK(read.waits[0].messages[0].number == 7);
  CHECK(read.waits[0].messages[0].peer == 2);
  CHECK(read.last_calls.at("pipe.0 1>2") == 7);
}

TEST_CASE("an exchange waits for the peers of its messages only", "[comm][hang]") {
  // Rank 1 exchanges with 0 and 2, of which 0 has come; rank 3 has made more calls of everything.
  RankReports reports{exchanging(0, {1}, 5), exchanging(1, {0, 2}, 5), busy(9, "step 3"), busy(9, "step 3")};
  CHECK(missing_from(reports[1]->waits[0], 1, reports) == std::vector<int>{2});
  reports[2]->last_calls = {{"pipe.0 1>2", 5}, {"pipe.0 2>1", 4}};  // it has come to one of the two messages
  CHECK(missing_from(reports[1]->waits[0], 1, reports) == std::vector<int>{2});
  reports[2]->last_calls["pipe.0 2>1"] = 6;
  CHECK(missing_from(reports[1]->waits[0], 1, reports).empty());
  auto before = earlier(reports);
  before[2]->heartbeat = reports[2]->heartbeat;
  CHECK(frozen_members(reports[1]->waits[0], 1, before, reports, kUnknown) == std::vector<int>{2});
}

TEST_CASE("a chain of exchanges leads to the rank at which it begins", "[comm][hang]") {
  // 0 waits for 1 and 1 for 2, which is busy; 3 is in a collective that 0 has not made.
  auto second = exchanging(1, {2}, 5);
  const RankReports reports{exchanging(0, {1}, 6), second, busy(0, "step 3"), waiting("world", 1, 4)};
  CHECK(missing_from(reports[0]->waits[0], 0, reports) == std::vector<int>{1});
  CHECK(root_missing(reports[0]->waits[0], 0, reports) == std::vector<int>{2});
  CHECK(root_missing(reports[1]->waits[0], 1, reports) == std::vector<int>{2});
  CHECK(root_missing(reports[3]->waits[0], 3, reports) == std::vector<int>{2});
}

TEST_CASE("ranks in exchanges of other messages than their peer's never go on", "[comm][hang]") {
  // Both have begun with the send to the other one, as separate calls.
  auto first = exchanging(0, {}, 0), second = exchanging(1, {}, 0);
  first.last_calls["pipe.0 0>1"] = second.last_calls["pipe.0 1>0"] = 1;
  first.waits[0].messages = {{"pipe.0 0>1", 1, 1}};
  second.waits[0].messages = {{"pipe.0 1>0", 1, 0}};
  CHECK(held_in({first, second}) == std::vector<int>{0, 1});
  CHECK(describe_deadlock({0, 1}, {first, second}) ==
        "rank 0 is waiting in exchange for rank 1; rank 1 is waiting in exchange for rank 0");
  CHECK(held_in({exchanging(0, {1}, 3), exchanging(1, {0}, 3)}).empty());  // these are in one
  const auto on_device = exchanging(0, {1}, 3, /*blocks_host=*/false);
  CHECK(held_in({on_device, second}).empty());
}

TEST_CASE("ranks in different calls, each of which waits for the others, never go on", "[comm][hang]") {
  CHECK(held_in({waiting("world", 5, 2), waiting("meeting/x", 1, 2)}) == std::vector<int>{0, 1});
  SECTION("however many stand at each, and in a ring") {
    CHECK(held_in({waiting("world", 5, 3), waiting("world", 5, 3), waiting("gather", 2, 3)}) ==
          std::vector<int>{0, 1, 2});
    auto a = waiting("ab", 1, 0), b = waiting("bc", 1, 0), c = waiting("ca", 1, 0);
    a.waits[0].members = {0, 1};
    b.waits[0].members = {1, 2};
    c.waits[0].members = {2, 0};
    CHECK(held_in({a, b, c}) == std::vector<int>{0, 1, 2});
  }
}

TEST_CASE("as long as one rank may still come, the others may go on", "[comm][hang]") {
  SECTION("one that is busy") {
    CHECK(held_in({waiting("world", 5, 2), busy(4, "step 3")}).empty());
  }
  SECTION("one that says nothing") {
    CHECK(held_in({waiting("world", 5, 2), std::nullopt}).empty());
  }
  SECTION("one that all of a circle need, but only part of it waits for") {
    // 0 and 1 wait for 2 only, which is busy: it may free either.
    auto a = waiting("ac", 1, 0), b = waiting("bc", 1, 0);
    a.waits[0].members = {0, 2};
    b.waits[0].members = {1, 2};
    CHECK(held_in({a, b, busy(0, "step 3")}).empty());
  }
  SECTION("one whose wait is about to end: all have come") {
    CHECK(held_in({waiting("world", 5, 2), waiting("world", 5, 2)}).empty());
  }
  SECTION("one that is behind, and whom all have passed") {
    CHECK(held_in({waiting("world", 6, 2), waiting("world", 5, 2)}).empty());
  }
}

TEST_CASE("what does not hold for two looks, or not for long, is no certainty", "[comm][hang]") {
  const RankReports now{waiting("world", 5, 2), waiting("meeting/x", 1, 2)};
  SECTION("a call that was another one before") {
    auto before = earlier(now);
    before[0] = waiting("world", 4, 2, 1);
    CHECK(find_deadlocked(before, now, kLong).empty());
  }
  SECTION("a rank that has said nothing since") {
    CHECK(find_deadlocked(now, now, kLong).empty());
  }
  SECTION("a short wait") {
    CHECK(find_deadlocked(earlier(now), now, 62s).empty());
  }
  SECTION("a wait of a device, behind which the host may issue more") {
    auto on_device = now;
    on_device[1]->waits[0].blocks_host = false;
    CHECK(find_deadlocked(earlier(on_device), on_device, kLong).empty());
  }
}

TEST_CASE("a rank that is waited for is described by what it tells, or by its process", "[comm][hang]") {
  const auto text_of = [](RankReport report, const StateOf& state_of = kUnknown, bool speaks = true) {
    const RankReports now{std::nullopt, report};
    auto before = now;
    if (speaks) before[1]->heartbeat -= 1;
    return describe_missing({1}, before, now, state_of);
  };
  CHECK(text_of(busy(4, "the data of step 3")) ==
        "rank 1 (node1, process 77): it has been busy with the data of step 3 for 70 s");
  RankReport split = busy(0, "step 3");
  split.place = "tensor rank 1 of 2";
  CHECK_THAT(text_of(split, kUnknown),
             Catch::StartsWith("rank 1 (node1, process 77, tensor rank 1 of 2): it has been busy"));
  CHECK(text_of(waiting("gather", 2, 2)) ==
        "rank 1 (node1, process 77): it is itself waiting in all_reduce in group 'gather'");
  CHECK(text_of(busy(4, "step 3", 5), kUnknown, false) ==
        "rank 1 (node1, process 77): it has not arrived and has stopped reporting");
  const StateOf stopped = [](const RankReport&) { return 'T'; };
  CHECK_THAT(text_of(busy(4, "step 3"), stopped, false),
             Catch::Contains("stopped") && Catch::Contains("kill -CONT 77"));
  const StateOf running = [](const RankReport&) { return 'R'; };
  CHECK_THAT(text_of(busy(4, "step 3"), running), Catch::Contains("busy with step 3"));
  CHECK(describe_missing({1}, {{}, {}}, {{}, {}}, kUnknown) == "rank 1: it has not arrived and has never reported");
}

TEST_CASE("a rank that freezes inside a call is told from those that wait in it", "[comm][hang]") {
  RankReports now{waiting("world", 5, 4), waiting("world", 5, 4), waiting("world", 5, 4), busy(6, "step 4")};
  const RankWait& wait = now[0]->waits[0];
  const auto before = earlier(now);
  REQUIRE(missing_from(wait, 0, now).empty());
  CHECK(frozen_members(wait, 0, before, now, kUnknown).empty());
  SECTION("by its silence") {
    now[2]->heartbeat = before[2]->heartbeat;
    REQUIRE(frozen_members(wait, 0, before, now, kUnknown) == std::vector<int>{2});
    CHECK_THAT(describe_frozen({2}, now, kUnknown),
               Catch::StartsWith("rank 2 (node1, process 77), which has arrived: it has stopped reporting"));
  }
  SECTION("by what the kernel says of it") {
    now[1]->pid = 78;
    const StateOf one_is_stopped = [](const RankReport& report) { return report.pid == 78 ? 'T' : 'S'; };
    REQUIRE(frozen_members(wait, 0, before, now, one_is_stopped) == std::vector<int>{1});
    CHECK_THAT(describe_frozen({1}, now, one_is_stopped),
               Catch::StartsWith("rank 1 (node1, process 78), which has arrived: it is stopped, as by SIGSTOP") &&
                   Catch::Contains("kill -CONT 78"));
  }
}

TEST_CASE("of many that are waited for, the first are described", "[comm][hang]") {
  const RankReports none(100);
  const auto text = describe_missing(ranks_below(100), none, none, kUnknown);
  CHECK_THAT(text, Catch::Contains("rank 3:") && !Catch::Contains("rank 4:") && Catch::EndsWith("and 96 more"));
}

TEST_CASE("of many that are waited for, those that wait themselves are described last", "[comm][hang]") {
  RankReports now(9, waiting("hpz.1", 2, 2));
  now[6] = busy(1, "step 3");
  auto before = earlier(now);
  before[7] = now[7];  // stopped in the middle of a wait
  const auto text = describe_missing(ranks_below(9), before, now, kUnknown);
  CHECK_THAT(text,
             Catch::StartsWith("rank 6 (node1, process 77): it has been busy with step 3 for 70 s; rank 7 (node1") &&
                 Catch::Contains("has stopped reporting; rank 0 (node1, process 77): it is itself waiting") &&
                 Catch::EndsWith("and 5 more"));
}
