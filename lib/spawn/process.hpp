// Starts one process: own session and process group, killed by the kernel when the thread that started it ends (so call
// from a thread that lives as long as the process should), default signals, no inherited descriptors but its three
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
  int inherited = -1;                      // borrowed, one more that the process gets under the same number; -1: none
  bool die_with_thread = true;
  std::vector<int> cpus{};           // the only CPUs that it may run on; empty: the caller's
  std::optional<int> memory_node{};  // NUMA node that its memory must come from
};

struct Process {
  pid_t pid = -1;
  UniqueFd out, err;  // read ends of its standard output and error, non-blocking; invalid where the spec names one
};

// Raises this process's descriptor limit to its hard limit. The processes that it starts get the original limit, that
// of this process before the first call of one of these two functions: programs that use select(2) rely on it. Any
// thread.
void raise_descriptor_limit();

// If the program cannot be started (not found 127, not executable 126, working directory missing 126, CPUs or NUMA node
// refused by the kernel 69, fork failed or no descriptor left 69), returns a cause with the reason as its hint; never
// throws for those.
std::variant<Process, ExitCause> start_process(const ProcessSpec& spec);

struct EndedChild {
  pid_t pid = -1;
  ExitCause cause;
  std::string cgroups;  // the text of its /proc/PID/cgroup
};

// Reaps one ended child of this process, a rank or an orphan that the kernel reparented to us; empty when there is none
// now. Call it after SIGCHLD until it returns empty.
std::optional<EndedChild> reap_any();

// Runs a program in this process's place until it ends, with its streams, terminal, environment, directory and open
// descriptors; `argv[0]` is a path. It stays in this process group, so that the terminal stops, continues and
// interrupts both; a signal that another process sends to this process is sent on to it. The kernel kills it when this
// process is killed. Call it while this process has one thread. Throws SystemError(69) when the program cannot be
// started.
EndedChild run_in_foreground(const std::vector<std::string>& argv);

// Signals the whole process group of a process that start_process created and that has not been reaped yet: its
// leader's pid identifies the group. A group that is gone is not an error.
void signal_group(const Process& process, int signal);

}  // namespace dslaunch::spawn
