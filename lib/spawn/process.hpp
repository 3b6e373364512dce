// Starts one process: own session and process group, killed by the kernel when the thread that started it ends (so call
// from a thread that lives as long as the process shall), default signals, no inherited descriptors but its three
// streams.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

struct ProcessSpec {
  std::vector<std::string> argv;           // argv[0] without '/' is searched in the PATH of `env`
  std::map<std::string, std::string> env;  // the whole environment
  std::string cwd;                         // empty: the caller's
  int in = -1;                             // borrowed, its standard input; -1: /dev/null
  int out = -1, err = -1;                  // borrowed; -1: a pipe to Process::out, Process::err
  int inherited = -1;                      // borrowed, one more that it gets under the same number; -1: none
  bool die_with_thread = true;
  std::vector<int> cpus{};           // the only ones that it may run on; empty: the caller's
  std::optional<int> memory_node{};  // NUMA node that its memory must come from
};

struct Process {
  pid_t pid = -1;
  UniqueFd out, err;  // read ends of its standard output and error, non-blocking; not valid where the spec names one
};

// Lets this process open as many descriptors as its hard limit allows. What it starts afterwards gets back the limit
// that it had: programs that use select(2) rely on it. Once, before the first start_process.
void raise_descriptor_limit();

// What keeps a program from being started (not found 127, not executable 126, folder missing 126, CPUs or NUMA node
// refused by the kernel 69, fork failed or no descriptor left 69) is returned as a cause with the reason as its hint;
// never throws for those.
std::variant<Process, ExitCause> start_process(const ProcessSpec& spec);

struct EndedChild {
  pid_t pid = -1;
  ExitCause cause;
  std::string cgroups;  // the text of its /proc/PID/cgroup
};

// Reaps one child of this process that has ended, a rank or an orphan that the kernel handed to us; empty when there is
// none now. Call it after SIGCHLD until it is empty.
std::optional<EndedChild> reap_any();

// To the whole process group of a process that start_process made and nobody has reaped yet: its leader's pid names the
// group. A group that is gone is no error.
void signal_group(const Process& process, int signal);

}  // namespace dslaunch::spawn
