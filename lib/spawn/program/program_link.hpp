// A program of this machine as the way to an agent: the agent itself, ssh, srun. It runs in a session of its own, so
// that a Ctrl-C at the terminal reaches only us, with default signals and no descriptors but its three streams.
//
// The program is started, watched and reaped by a thread of the link. The caller's ends are those of two pipes whose
// other ends the link holds too, until the program's end is understood: so a failure is known before `from_agent` ends,
// and a program that is started again finds what was written for it untouched.
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

  std::optional<std::map<std::string, std::string>> env;  // the whole environment; ours when not given
  Errors errors = Errors::kInherit;                       // its standard error: ours, or kept for `explain`
  int inherited = -1;  // borrowed until the program has started: a descriptor that it gets under the same number
  // The kernel kills the program when this process ends. Right for ssh and srun; an agent sees it by the end of its
  // standard input, and has something to tidy up.
  bool die_with_us = false;
  // Called when the program has ended unsuccessfully or could not be started, on the link's thread, with the last 8 KiB
  // of its standard error.
  std::function<LinkFailure(const ExitCause&, const std::string& errors)> explain;
  // Asked before `explain`: a pause after which the program is to be started again, nothing to give up.
  std::function<std::optional<std::chrono::milliseconds>(const ExitCause&, const std::string& errors)> again;
};

class ProgramLink final : public ThreadedLink {
 public:
  ~ProgramLink() override;
  void kill() override;  // SIGKILL to the program's process group

  // The running program's; waits for its first start, a few milliseconds. Nothing when there is none.
  std::optional<pid_t> pid() const;

 private:
  struct State;
  friend std::unique_ptr<ProgramLink> open_program_link(const std::vector<std::string>&, ProgramLinkOptions);
  ProgramLink(std::shared_ptr<State> state, LinkEnds ends);

  std::shared_ptr<State> state_;
};

// Returns at once. argv[0] without '/' is searched in PATH. A program that cannot be started is a failure of the link.
// Throws SystemError for want of descriptors or threads.
std::unique_ptr<ProgramLink> open_program_link(const std::vector<std::string>& argv, ProgramLinkOptions options);

}  // namespace dslaunch::spawn
