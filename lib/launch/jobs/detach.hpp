// --detach: the supervisor becomes a process in a session of its own, and the command that the user typed waits until
// the job's ranks have started.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

// The result of the start, in the foreground process (the command that the user typed).
struct Started {
  pid_t supervisor = -1;
  int exit_code = 0;   // 0: every rank was started; else the job has ended already
  std::string job_id;  // empty: the start failed before there was a job, and the error was printed on the terminal
};

struct DetachedSide {
  bool is_supervisor = false;
  UniqueFd starter;  // in the supervisor: for report_start
  Started started;   // in the foreground process
};

// Forks: call before any thread is started. Returns in both processes: at once in the supervisor, which keeps the
// working directory and the standard streams for now; in the foreground process once the supervisor has reported. A
// Ctrl-C in the meantime is forwarded to the supervisor. If the supervisor died of a signal forwarded to it: exit code
// 128 plus the signal number. Throws UserError(69) when the supervisor was killed otherwise, SystemError(69) when it
// cannot be created.
DetachedSide detach();

// In the supervisor, once its output can go elsewhere: standard input becomes /dev/null, standard output and error
// become `console`.
void leave_terminal(int console);

// From the supervisor to the foreground process. Ignores a reader that is gone.
void report_start(const UniqueFd& starter, int exit_code, const std::string& job_id);

}  // namespace dslaunch::launch
