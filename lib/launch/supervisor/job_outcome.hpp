// How a job ended: which rank failed first, and the exit code (docs/exit_codes.md). Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_kind.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

struct RankRecord {
  int rank = 0, local_rank = 0;
  std::string host;
  long pid = -1;                             // -1: never started
  std::optional<spawn::ExitCause> cause;     // empty: its end was not observed
  std::optional<spawn::StuckProcess> stuck;  // SIGKILL has not ended it
  bool stopped_by_us = false;
  int order = -1;              // among the ends, from 0
  std::string output_tail;     // end of its standard error
  bool tail_is_shown = false;  // among the last lines of the terminal
  bool has_log = true;         // its log could be created, and stays where it is
  bool has_output = false;     // it has written something
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

// For a signal to the launcher. SIGUSR1 and SIGUSR2, which schedulers send ahead of the end, ask dsworkers to stop;
// other programs define their own meaning.
bool is_stop_signal(int signal, JobKind kind);
StopReason reason_of(int signal);

// A worker that ended only because a peer did. Other programs may use the same number with their own meaning.
bool lost_peer(const spawn::ExitCause& cause, JobKind kind);
// The ways in which a rank ends because it was told to.
bool ended_as_told(const spawn::ExitCause& cause, JobKind kind);
// The same for a SIGTERM that dslaunch did not send: its sender may be about to signal dslaunch too.
bool ended_as_by_sigterm(const spawn::ExitCause& cause);

struct JobOutcome {
  int exit_code = 0;
  std::optional<int> first_failure;  // index in the records
};

// The rank was stopped, and ended as it should: by dslaunch or, if the job was told to end, by the signal itself, since
// a scheduler signals all processes of a job at once.
bool ended_on_request(const RankRecord& record, JobKind kind, bool job_was_told);

// `agent_error`: the exit code of an agent that could not do its part, was lost, or was told to end (75); 0: none.
JobOutcome decide_outcome(const std::vector<RankRecord>& records, JobKind kind, StopReason reason, int agent_error);

// The meaning of a dslaunch exit code for a worker, "" for any other code.
std::string meaning_of_code(int code);

}  // namespace dslaunch::launch
