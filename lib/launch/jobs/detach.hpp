// --detach: the supervisor becomes a process of its own session, and the command that was typed waits until the job's
// ranks have started. Call before any thread is started.
#pragma once
#include <sys/types.h>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

// In the supervisor.
struct Supervising {
  UniqueFd starter;  // for report_start
};
// In the command that was typed.
struct Started {
  pid_t supervisor = -1;
  int exit_code = 0;  // 0: every rank was started; else the job has ended already, with this
};
struct DetachedSide {
  bool is_supervisor = false;
  Supervising supervising;
  Started started;
};

// Forks. The supervisor's standard input is /dev/null, its standard output and error are `console`; its folder stays.
// Returns in both processes: at once in the supervisor, in the other once the supervisor reported (exit code 70 when it
// died without a word). Throws SystemError.
DetachedSide detach(int console);

// From the supervisor to the command that was typed: 0, or the code that the job has ended with. A reader that is gone
// is no matter.
void report_start(const UniqueFd& starter, int exit_code);

}  // namespace dslaunch::launch
