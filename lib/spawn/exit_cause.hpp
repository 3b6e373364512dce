// Why a process ended, in a form that can be sent and that a person can read. Plain values, any thread.
#pragma once
#include <string>

namespace dslaunch::spawn {

struct ExitCause {
  enum class Kind { kExited, kSignaled, kNotStarted };
  Kind kind = Kind::kExited;
  // kExited: the code; kSignaled: the signal; kNotStarted: 126 or 127, 69 when the kernel refused the process, the CPUs
  // or the NUMA node.
  int number = 0;
  bool core_dumped = false;
  std::string hint;  // further evidence: the kernel's out-of-memory killer, why the program could not be started

  bool success() const { return kind == Kind::kExited && number == 0; }
  // The status that a shell would report: the exit code, 128 + signal, 126/127.
  int shell_code() const { return kind == Kind::kSignaled ? 128 + number : number; }
  bool operator==(const ExitCause&) const = default;
};

// From the status of waitpid(2).
ExitCause decode_wait_status(int status);

// Ends this process by the signal that ended another one, which has dumped core already.
[[noreturn]] void end_by_signal(int signal);

// "SIGKILL" for 9, "signal 77" for a signal without a name.
std::string signal_name(int signal);

// "exit code 3", "killed by SIGKILL (signal 9)", "not started"; followed by a colon and the hint, if any.
std::string describe(const ExitCause& cause);

}  // namespace dslaunch::spawn
