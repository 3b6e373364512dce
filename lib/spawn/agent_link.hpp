// A connection to a node's agent over any transport (a pipe, SSH, srun, a connection that the agent made to us): two
// descriptors that carry the control channel, and the failure reason if the transport fails. One function per backend
// creates it: local/, ssh/, ...
#pragma once
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/exit_code.hpp"
#include "base/unique_fd.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

// The transport to a host could not be set up, or has broken.
struct LinkFailure {
  ExitCode code = ExitCode::kUnavailable;  // 69; 77 for keys and authentication; 124 for a deadline that passed
  std::string phase;                       // "resolve", "connect", "host key", "authentication", "start", "connection"
  std::string text;                        // one line: what was tried, the result, what to do
  bool ended_there = false;                // the transport worked, but its far end, a shell or the agent, ended
};

// Both descriptors are non-blocking.
struct LinkEnds {
  UniqueFd to_agent;    // the agent's standard input
  UniqueFd from_agent;  // the agent's standard output; ends when the agent or the transport is gone
};

class AgentLink {
 public:
  // Ends what is still running, without waiting for it.
  virtual ~AgentLink() = default;
  // Call once. Available immediately, even while the connection is being set up: data written earlier is kept for it.
  virtual LinkEnds take_ends() = 0;
  // Set before `from_agent` ends, if the transport failed. Any thread.
  virtual std::optional<LinkFailure> failure() const = 0;
  // Ends the agent if it is a process of this machine, otherwise cuts the connection. Does not block.
  virtual void kill() = 0;
  // Waits until nothing of the link is left on this machine. False at the deadline.
  virtual bool wait(Deadline deadline) = 0;
};

// A link whose far end is a command that ends with an exit code and may write to standard error.
class CommandLink : public AgentLink {
 public:
  // How the command ended. Set before `from_agent` ends; nullopt when the transport broke first, or we cut the
  // connection.
  virtual std::optional<ExitCause> cause() const = 0;
  // The last 8 KiB of its standard error so far, where the link keeps it.
  virtual std::string errors() const = 0;
};

}  // namespace dslaunch::spawn
