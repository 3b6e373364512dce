#include "launch/supervisor/job_outcome.hpp"

#include <algorithm>
#include <csignal>

#include "base/exit_code.hpp"

namespace dslaunch::launch {
namespace {

bool failed(const RankRecord& record) {
  return record.cause && !record.cause->success();
}

// Indices of the ranks that failed, in the order of their ends.
std::vector<int> failures_in_order(const std::vector<RankRecord>& records) {
  std::vector<int> indices;
  for (size_t i = 0; i < records.size(); ++i) {
    if (failed(records[i])) indices.push_back(static_cast<int>(i));
  }
  std::stable_sort(indices.begin(), indices.end(), [&](int a, int b) { return records[a].order < records[b].order; });
  return indices;
}

// A rank that failed by itself comes before one that only lost a peer. The lost peer may be slow to end, releasing a
// device or dumping core, so that it was stopped with the others: its exit status shows that the stop was not the
// cause.
std::optional<int> first_own_failure(const std::vector<RankRecord>& records, JobKind kind, bool job_was_told) {
  std::optional<int> follower, late;
  for (int index : failures_in_order(records)) {
    const RankRecord& record = records[index];
    if (ended_on_request(record, kind, job_was_told)) continue;
    if (record.stopped_by_us) {
      if (!late) late = index;
    } else if (!lost_peer(*record.cause, kind)) {
      return index;
    } else if (!follower) {
      follower = index;
    }
  }
  return follower && late ? late : follower;
}

int code_of(const RankRecord& record, JobKind kind) {
  // A worker that lost a peer although none failed: dslaunch has to explain why the peer left.
  if (lost_peer(*record.cause, kind)) return to_int(ExitCode::kInternal);
  const int code = record.cause->shell_code();
  // No worker exits with this code: the dynamic loader did not find a library.
  if (kind == JobKind::kRun && code == 127) return to_int(ExitCode::kUnavailable);
  return code;
}

// A worker does not handle SIGTERM before it has something to save.
bool ended_before_it_began(const RankRecord& record, JobKind kind) {
  return kind == JobKind::kRun && record.cause->kind == spawn::ExitCause::Kind::kSignaled &&
         record.cause->number == SIGTERM;
}

// The scheduler asked: "run me again" if every rank could save, or had not begun, else the first other rank's code.
int code_after_terminate(const std::vector<RankRecord>& records, JobKind kind) {
  const int run_again = to_int(ExitCode::kRunAgain);
  int code = 0;
  for (int index : failures_in_order(records)) {
    if (lost_peer(*records[index].cause, kind)) continue;
    int own = ended_before_it_began(records[index], kind) ? run_again : code_of(records[index], kind);
    if (own != run_again) return own;
    code = run_again;
  }
  // Reported as if it had died of the SIGKILL that did not end it: it has saved nothing.
  if (std::any_of(records.begin(), records.end(), [](const auto& record) { return record.stuck.has_value(); })) {
    return to_int(ExitCode::kSignalBase) + SIGKILL;
  }
  bool never_started = std::any_of(records.begin(), records.end(), [](const auto& record) { return !record.cause; });
  if (code != 0 || !never_started) return code;
  return kind == JobKind::kRun ? run_again : to_int(ExitCode::kSignalBase) + SIGTERM;
}

}  // namespace

bool is_stop_signal(int signal, JobKind kind) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return kind == JobKind::kRun;
  return signal != SIGTSTP;
}

StopReason reason_of(int signal) {
  if (signal == SIGINT) return StopReason::kInterrupt;
  return signal == SIGQUIT ? StopReason::kQuit : StopReason::kTerminate;
}

bool lost_peer(const spawn::ExitCause& cause, JobKind kind) {
  return kind == JobKind::kRun && cause.kind == spawn::ExitCause::Kind::kExited &&
         cause.number == to_int(ExitCode::kPeerLost);
}

bool ended_as_told(const spawn::ExitCause& cause, JobKind kind) {
  if (cause.kind == spawn::ExitCause::Kind::kSignaled) return cause.number == SIGTERM || cause.number == SIGKILL;
  constexpr int kShellTerm = to_int(ExitCode::kSignalBase) + SIGTERM;
  return cause.number == to_int(ExitCode::kRunAgain) || cause.number == to_int(ExitCode::kInterrupted) ||
         cause.number == kShellTerm || lost_peer(cause, kind);
}

bool ended_as_by_sigterm(const spawn::ExitCause& cause) {
  if (cause.kind == spawn::ExitCause::Kind::kSignaled) return cause.number == SIGTERM;
  return cause.number == to_int(ExitCode::kRunAgain) || cause.number == to_int(ExitCode::kSignalBase) + SIGTERM;
}

bool ended_on_request(const RankRecord& record, JobKind kind, bool job_was_told) {
  if (!record.cause) return false;
  if (record.stopped_by_us) return ended_as_told(*record.cause, kind);
  return job_was_told && (ended_as_by_sigterm(*record.cause) || lost_peer(*record.cause, kind));
}

JobOutcome decide_outcome(const std::vector<RankRecord>& records, JobKind kind, StopReason reason, int agent_error) {
  const bool agent_terminated = agent_error == to_int(ExitCode::kRunAgain);  // an agent was
  JobOutcome outcome{
      .exit_code = 0,
      .first_failure = first_own_failure(records, kind, reason != StopReason::kNone || agent_terminated)};
  if (reason == StopReason::kInterrupt) {
    outcome.exit_code = to_int(ExitCode::kInterrupted);
  } else if (reason == StopReason::kQuit) {
    outcome.exit_code = to_int(ExitCode::kSignalBase) + SIGQUIT;
  } else if (reason == StopReason::kTimeLimit) {
    outcome.exit_code = to_int(ExitCode::kTimeout);
  } else if (agent_error != 0 && !agent_terminated) {
    outcome.exit_code = agent_error;
  } else if (outcome.first_failure && !agent_terminated) {
    outcome.exit_code = code_of(records[*outcome.first_failure], kind);
  } else if (agent_terminated || reason == StopReason::kTerminate || reason == StopReason::kCommand) {
    outcome.exit_code = code_after_terminate(records, kind);
  } else if (std::any_of(records.begin(), records.end(), [](const auto& r) { return !r.cause || failed(r); })) {
    outcome.exit_code = to_int(ExitCode::kInternal);  // never 0 unless every rank's was
  }
  return outcome;
}

std::string meaning_of_code(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage:
      return "command line not understood";
    case ExitCode::kBadInput:
      return "config, data, model or checkpoint not usable";
    case ExitCode::kNoInput:
      return "a file is missing or cannot be read";
    case ExitCode::kUnavailable:
      return "a device, port or program is not available";
    case ExitCode::kInternal:
      return "a bug of dslaunch; please report it with the log";
    case ExitCode::kPeerLost:
      return "it lost the connection to another rank";
    case ExitCode::kCannotCreate:
      return "the run directory or a checkpoint cannot be created";
    case ExitCode::kIoError:
      return "input or output failed, or the disk is full";
    case ExitCode::kRunAgain:
      return "stopped on request; run again to continue";
    case ExitCode::kCannotContinue:
      return "training cannot continue: the loss or its scale is not usable, or --verify found a difference";
    case ExitCode::kPermission:
      return "permission denied";
    case ExitCode::kContradiction:
      return "config and environment contradict each other";
    case ExitCode::kTimeout:
      return "a time limit passed";
    case ExitCode::kInterrupted:
      return "interrupted";
    default:
      return {};
  }
}

}  // namespace dslaunch::launch
