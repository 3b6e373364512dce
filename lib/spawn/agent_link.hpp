// A node's agent, however it was reached (a pipe, SSH, srun, a connection that it made to us): two descriptors that
// carry the control channel, and what is known when the way to it fails. Made by one function a backend: local/, ssh/,
// ...
#pragma once
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/exit_code.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

// The way to a host could not be made, or has broken.
struct LinkFailure {
  ExitCode code = ExitCode::kUnavailable;  // 69; 77 for keys and authentication; 124 for a deadline that passed
  std::string phase;                       // "resolve", "connect", "host key", "authentication", "start", "connection"
  std::string text;                        // one line: what was tried, what came back, what to do
  bool ended_there = false;                // the way was good: what it led to, a shell or the agent, ended
};

// Both non-blocking.
struct LinkEnds {
  UniqueFd to_agent;    // its standard input
  UniqueFd from_agent;  // its standard output; ends when the agent or the way to it is gone
};

class AgentLink {
 public:
  // Ends what is still there, without waiting for it.
  virtual ~AgentLink() = default;
  // Once. There at once, also while the connection is still being made: what is written then is kept for it.
  virtual LinkEnds take_ends() = 0;
  // Set before `from_agent` ends, when the way failed. Any thread.
  virtual std::optional<LinkFailure> failure() const = 0;
  // Ends the agent where it is a process of this machine, cuts the connection elsewhere. Does not block.
  virtual void kill() = 0;
  // Until nothing of the link is left on this machine. False at the deadline.
  virtual bool wait(Deadline deadline) = 0;
};

}  // namespace dslaunch::spawn
