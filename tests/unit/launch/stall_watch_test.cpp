#include "launch/supervisor/stall_watch.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

constexpr StallWatch::Time kStart{1000s};

std::vector<RankRecord> four_ranks() {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    records.push_back({.rank = rank, .host = rank < 2 ? "node1" : "node2", .pid = 100 + rank});
  }
  return records;
}

// A stall watch with a clock; idle means since 20 s.
struct Job {
  std::optional<std::string> line(std::chrono::seconds at) { return watch.due(records, "a-job", kStart + at); }
  void is(RankState state, int rank, std::chrono::seconds at, pid_t pid = 0) {
    watch.take({rank, state, pid}, kStart + at);
  }
  // Those times up to `end` at which a line came, looked for every second.
  std::vector<std::chrono::seconds> lines_until(std::chrono::seconds end, std::chrono::seconds begin = 0s) {
    std::vector<std::chrono::seconds> times;
    for (auto at = begin; at <= end; at += 1s) {
      if (line(at)) times.push_back(at);
    }
    return times;
  }

  std::vector<RankRecord> records = four_ranks();
  StallWatch watch;
};

using Times = std::vector<std::chrono::seconds>;

}  // namespace

TEST_CASE("the line about a stall has the state of every rank", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 0, 20s);
  job.is(RankState::kIdle, 1, 21s);
  CHECK_FALSE(job.line(22s));
  SECTION("one is stopped") {
    job.is(RankState::kStopped, 2, 22s, 4711);
    job.is(RankState::kIdle, 3, 22s);
    CHECK(job.line(23s).value() ==
          "4 of 4 ranks used less than 1% of a core and printed nothing for 23 s: ranks 0-1, 3 idle; rank 2 (node2) "
          "stopped, e.g. by SIGSTOP or a debugger ('kill -CONT 4711' on its host continues it); 'dslaunch stacks "
          "a-job' shows "
          "where "
          "each is");
  }
  SECTION("one computes") {
    job.is(RankState::kIdle, 3, 22s);
    CHECK_THAT(job.line(23s).value(),
               Catch::StartsWith("3 of 4 ranks") &&
                   Catch::Contains(
                       "ranks 0-1, 3 idle; rank 2 (node2, process 102) busy: the other ranks may be waiting for it"));
  }
  SECTION("several compute") {
    CHECK_THAT(job.line(23s).value(),
               Catch::Contains("ranks 0-1 idle; ranks 2-3 busy: the other ranks may be waiting for one"));
  }
  SECTION("one waits for a file server") {
    job.is(RankState::kBlocked, 3, 22s, 88);
    CHECK_THAT(job.line(23s).value(),
               Catch::Contains("rank 3 (node2) waiting in the kernel") && Catch::Contains("a driver (process 88)"));
  }
  SECTION("one has ended") {
    job.records[3].cause = spawn::ExitCause{};
    job.watch.rank_ended(3, kStart + 22s);
    CHECK_THAT(job.line(23s).value(), Catch::StartsWith("2 of 3 ranks") && !Catch::Contains("3 busy"));
  }
}

TEST_CASE("a stall is reported after 20 s, 5 and 15 minutes, less than 30 s after it begins", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 1, 22s);  // since 2 s
  CHECK(job.lines_until(2h) == Times{25s, 302s, 902s});
  CHECK(job.watch.next_due() == StallWatch::Time::max());
}

TEST_CASE("ranks that continue before the line are not reported", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 1, 20s);
  job.is(RankState::kBusy, 1, 22s);
  CHECK(job.lines_until(100s).empty());
}

TEST_CASE("each stall is reported", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 1, 20s);
  CHECK(job.lines_until(30s) == Times{23s});
  job.is(RankState::kBusy, 1, 31s);
  job.is(RankState::kStopped, 2, 60s, 7);
  CHECK(job.lines_until(70s, 32s) == Times{63s});
}

TEST_CASE("repeated pauses of a job are reported less often", "[launch][stall_watch]") {
  Job job;
  size_t lines = 0;
  for (auto at = 20s; at <= 2h; at += 40s) {
    job.is(RankState::kIdle, 1, at);
    lines += job.lines_until(at + 10s, at).size();
    job.is(RankState::kBusy, 1, at + 11s);
  }
  CHECK(lines == 4);
  job.is(RankState::kIdle, 1, 3h);
  CHECK(job.lines_until(3h + 60s, 3h) == Times{3h + 23s});
}

TEST_CASE("a stall is reported also while one rank is always idle", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 3, 20s);
  CHECK(job.lines_until(1h).size() == 3);
  for (int rank : {0, 1, 2}) job.is(RankState::kIdle, rank, 1h + 20s);
  CHECK(job.lines_until(1h + 30s, 1h) == Times{1h + 23s});
}

TEST_CASE("with the end of all idle ranks a stall is over", "[launch][stall_watch]") {
  Job job;
  job.is(RankState::kIdle, 1, 20s);
  job.watch.rank_ended(1, kStart + 22s);
  CHECK(job.lines_until(1h).empty());
}
