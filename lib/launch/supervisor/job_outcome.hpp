// How a job ended: which rank failed first, and the exit code (docs/exit_codes.md). Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/channel/job_kind.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

struct RankRecord {
  int rank = 0, local_rank = 0;
  std::string host;
  long pid = -1;                             // -1: never started
  std::optional<spawn::ExitCause> cause;     // empty: nobody saw it end
  std::optional<spawn::StuckProcess> stuck;  // SIGKILL has not ended it
  bool stopped_by_us = false;
  int order = -1;          // among the ends, from 0
  std::string last_words;  // end of its standard error
  bool has_log = true;     // its log could be made
};

// Why the job was ended from outside, if it was.
enum class StopReason {
  kNone,
  kInterrupt,  // Ctrl-C
  kQuit,       // SIGQUIT, as Ctrl-\ sends it
  kTerminate,  // by a signal
  kCommand,    // by `dslaunch stop`
  kTimeLimit,
};

// Of a signal to the launcher. SIGUSR1 and SIGUSR2, by which schedulers say in advance that the end comes, ask workers
// of ours to stop; what they mean to other programs is those programs' own.
bool asks_for_end(int signal, JobKind kind);
StopReason reason_of(int signal);

// A worker that ended only because a peer of it did. The same number from another program is that program's own.
bool lost_peer(const spawn::ExitCause& cause, JobKind kind);
// The ways in which a rank ends because it was told to.
bool ended_as_told(const spawn::ExitCause& cause, JobKind kind);
// The same of a SIGTERM that was not ours: who told it may be about to tell us.
bool ended_as_by_sigterm(const spawn::ExitCause& cause);

struct JobOutcome {
  int exit_code = 0;
  std::optional<int> first_failure;  // place in the records
};

// `agent_error`: the exit code of an agent that could not do its part, was lost, or was told to end (75); 0: none.
// It was stopped, and ended as it should: by us, or, where the job was told to end, by the signal itself, since a
// scheduler signals all processes of a job at once.
bool ended_on_request(const RankRecord& record, JobKind kind, bool job_was_told);

JobOutcome decide_outcome(const std::vector<RankRecord>& records, JobKind kind, StopReason reason, int agent_error);

// What one of our exit codes means for a worker, "" when it is not one of ours.
std::string meaning_of_code(int code);

}  // namespace dslaunch::launch
