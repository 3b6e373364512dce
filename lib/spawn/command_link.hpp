// A link whose far end is a command with an end of its own: an exit code, and something said on standard error.
#pragma once
#include <optional>
#include <string>

#include "spawn/agent_link.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

class CommandLink : public AgentLink {
 public:
  // How the command ended. Set before `from_agent` ends; nothing when the way broke first, or we cut it.
  virtual std::optional<ExitCause> cause() const = 0;
  // The last 8 KiB of its standard error so far, where that is kept.
  virtual std::string errors() const = 0;
};

}  // namespace dslaunch::spawn
