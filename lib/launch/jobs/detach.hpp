// --detach: the supervisor becomes a process of its own session, and the command that was typed waits until the job's
// ranks have started.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

// What became of the start, in the command that was typed.
struct Started {
  pid_t supervisor = -1;
  int exit_code = 0;   // 0: every rank was started; else it is over already
  std::string job_id;  // empty: it was over before there was a job, and why was said on the terminal
};

struct DetachedSide {
  bool is_supervisor = false;
  UniqueFd starter;  // in the supervisor: for report_start
  Started started;   // in the other
};

// Forks: call before any thread is started. Returns in both processes: at once in the supervisor, which keeps folder
// and streams for now; in the other once the supervisor has reported. A Ctrl-C in the meantime goes to the supervisor.
// A supervisor that died of a signal that it got from here: exit code 128 and its number. Throws UserError(69) for one
// that was killed otherwise, SystemError(69) when none can be made.
DetachedSide detach();

// In the supervisor, once it has somewhere else to speak: standard input is /dev/null from here on, standard output and
// error are `console`.
void leave_terminal(int console);

// From the supervisor to the command that was typed. A reader that is gone is no matter.
void report_start(const UniqueFd& starter, int exit_code, const std::string& job_id);

}  // namespace dslaunch::launch
