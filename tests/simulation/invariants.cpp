// What holds in every simulated job, whatever happens to it.
#include <algorithm>
#include <csignal>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "simulation/simulation.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;

// Two failures so near each other may be seen in either order: their reports travel on different ways.
constexpr Duration kSameMoment = 1500ms;

bool failed_by_itself(const RankEnd& end) {
  const bool lost_peer =
      end.cause.kind == spawn::ExitCause::Kind::kExited && end.cause.number == to_int(ExitCode::kPeerLost);
  return !end.cause.success() && !end.was_told && !lost_peer;
}

}  // namespace

// No two runs of one job: when a rank starts, no process of another attempt runs on its host, or on any host that
// the launcher can reach, and no rank runs twice.
void Simulation::rank_starts(const Process& rank) {
  for (const auto& [pid, other] : world.processes()) {
    if (pid == rank.pid || !other->is_alive || other->is_dying || other->rank < 0) continue;
    const bool is_of_other_attempt =
        other->attempt != rank.attempt && (other->host == rank.host || !is_disturbed(other->host));
    const bool is_twin = other->is_rank && other->attempt == rank.attempt && other->rank == rank.rank;
    if (!is_of_other_attempt && !is_twin) continue;
    world.violate(
        fmt::format("two runs of one job: {} starts on {} while {} runs there", rank.name, rank.host, other->name));
  }
}

void Simulation::attempt_ended(const launch::JobReport& report) {
  if (was_killed_) return;
  ++num_attempts_ended_;
  reported_code_ = report.outcome.exit_code;
  world.note(fmt::format("attempt ends with code {}, first failure {}, reason {}, {} hosts lost",
                         report.outcome.exit_code, report.outcome.first_failure ? *report.outcome.first_failure : -1,
                         static_cast<int>(report.reason), report.host_failures.size()));
  for (const auto& stuck : report.stuck) reported_stuck_.insert(stuck.process.pid);
  check_all_gone("at the end of an attempt", /*everywhere=*/false);
  check_first_failure(report);
  check_records(report);
  std::erase_if(disturbed_hosts_, [&](const auto& host) { return host.second < world.clock.now(); });
}

// The root cause is named: the rank that failed first, or the host that was lost, or the request to end.
void Simulation::check_first_failure(const launch::JobReport& report) {
  const int attempt = num_attempts_ended_ - 1;
  std::vector<RankEnd> own;
  size_t num_successes = 0;
  for (const RankEnd& end : rank_ends) {
    if (end.attempt != attempt) continue;
    if (failed_by_itself(end)) own.push_back(end);
    num_successes += end.cause.success() ? 1 : 0;
  }
  const int code = report.outcome.exit_code;
  if (code == to_int(ExitCode::kInternal)) world.violate("an attempt ends with an internal error");
  if (code == to_int(ExitCode::kPeerLost)) world.violate("the job ends with the code of a rank that lost a peer");
  if (code == 0 && num_successes != report.records.size() && report.reason == launch::StopReason::kNone) {
    world.violate(fmt::format("exit code 0, but only {} of {} ranks succeeded", num_successes, report.records.size()));
  }
  for (const auto& [host, failure] : report.host_failures) {
    if (!disturbed_hosts_.contains(host))
      world.violate(fmt::format("{} is blamed without a fault: {}", host, failure.text));
  }
  if (code == 0 || report.reason != launch::StopReason::kNone || !report.ended_by.empty() || report.agent_terminated)
    return;
  if (!report.outcome.first_failure) {
    if (!own.empty() || disturbed_hosts_.empty())
      world.violate(fmt::format("no root cause is named for exit code {}", code));
    return;
  }
  if (own.empty()) return;
  const auto named = std::find_if(own.begin(), own.end(),
                                  [&](const RankEnd& end) { return end.rank == *report.outcome.first_failure; });
  if (named == own.end())
    return world.violate(fmt::format("rank {} is named, which did not fail by itself", *report.outcome.first_failure));
  // What happens on a host that cannot be reached is learned late or never.
  for (const RankEnd& end : own) {
    if (named->when <= end.when + kSameMoment || is_disturbed(end.host)) continue;
    world.violate(fmt::format("rank {} is named, but rank {} failed before", named->rank, end.rank));
  }
  if (code != named->cause.shell_code()) {
    world.violate(fmt::format("exit code {}, but rank {} ended with {}", code, named->rank, named->cause.shell_code()));
  }
}

// What the report says of a rank is what happened to it; only of a lost host nothing is known.
void Simulation::check_records(const launch::JobReport& report) {
  const int attempt = num_attempts_ended_ - 1;
  for (const auto& record : report.records) {
    const auto end = std::find_if(rank_ends.begin(), rank_ends.end(), [&](const RankEnd& each) {
      return each.attempt == attempt && each.rank == record.rank;
    });
    if (end == rank_ends.end()) continue;
    if (record.cause && (record.cause->kind != end->cause.kind || record.cause->number != end->cause.number)) {
      world.violate(fmt::format("rank {} is reported with '{}', but ended with '{}'", record.rank,
                                spawn::describe(*record.cause), spawn::describe(end->cause)));
    }
    if (!record.cause && !record.stuck && !is_disturbed(record.host)) {
      world.violate(fmt::format("the end of rank {} is not reported: {}", record.rank, spawn::describe(end->cause)));
    }
  }
}

// No rank outlives its job. Hosts that the launcher could not reach, which it says, end their ranks a little later.
void Simulation::check_all_gone(const char* when, bool everywhere) {
  for (const auto& [pid, process] : world.processes()) {
    if (!process->is_alive || process->rank < 0) continue;
    const bool is_reported =
        terminal.find("cannot reach " + process->host) != std::string::npos || reported_stuck_.contains(pid);
    if (!everywhere && is_reported) continue;
    world.violate(fmt::format("{} still runs on {} {}", process->name, process->host, when));
  }
}

// One exit code, that of the last attempt unless a request to end came after it.
void Simulation::launcher_returned(int exit_code) {
  if (was_killed_) return;
  world.note(fmt::format("the launcher returns {}", exit_code));
  if (exit_code_) world.violate("two exit codes");
  if (exit_code == to_int(ExitCode::kInternal)) world.violate("the exit code is that of an internal error");
  exit_code_ = exit_code;
  if (reported_code_ && exit_code != *reported_code_ && !was_asked_to_end_ && !scenario.time_limit) {
    world.violate(fmt::format("exit code {}, but the last attempt's was {}", exit_code, *reported_code_));
  }
  check_all_gone("at the job's end", /*everywhere=*/false);
}

}  // namespace dslaunch::simulation
