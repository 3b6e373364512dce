// A local program as the transport to an agent: the agent itself, ssh, srun. The program runs in its own session, so
// that a Ctrl-C at the terminal reaches only this process, with default signals and no descriptors but its three
// streams.
//
// A thread of the link starts, watches and reaps the program. The caller's ends belong to two pipes, and the link also
// holds the far ends until it has interpreted the program's end: so a failure is known before `from_agent` ends, and a
// restarted program finds the input that was written for it intact.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spawn/threaded_link.hpp"

namespace dslaunch::spawn {

struct ProgramLinkOptions {
  enum class Errors { kInherit, kCapture };

  std::optional<std::map<std::string, std::string>> env;  // the whole environment; ours if not given
  Errors errors = Errors::kInherit;                       // its standard error: ours, or kept for `explain`
  int inherited = -1;  // borrowed until the program has started: a descriptor that it gets under the same number
  // The kernel kills the program when this process ends. Right for ssh and srun; an agent detects that by the end of
  // its standard input, and must clean up.
  bool die_with_us = false;
  // Called on the link's thread when the program has failed or could not be started, with the last 8 KiB of its
  // standard error.
  std::function<LinkFailure(const ExitCause&, const std::string& errors)> explain;
  // Called before `explain`: returns the pause before the program is started again, or nullopt to give up.
  std::function<std::optional<std::chrono::milliseconds>(const ExitCause&, const std::string& errors)> again;
};

class ProgramLink final : public ThreadedLink {
 public:
  ~ProgramLink() override;
  void kill() override;  // SIGKILL to the program's process group

  // The running program's pid; waits for its first start, a few milliseconds. nullopt when it does not run.
  std::optional<pid_t> pid() const;

 private:
  struct State;
  friend std::unique_ptr<ProgramLink> open_program_link(const std::vector<std::string>&, ProgramLinkOptions);
  ProgramLink(std::shared_ptr<State> state, LinkEnds ends);

  std::shared_ptr<State> state_;
};

// Returns immediately. argv[0] without '/' is searched in PATH. A program that cannot be started is a failure of the
// link. Throws SystemError when no descriptors or threads are left.
std::unique_ptr<ProgramLink> open_program_link(const std::vector<std::string>& argv, ProgramLinkOptions options);

}  // namespace dslaunch::spawn
