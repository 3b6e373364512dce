// A link whose far end is a command that ends with an exit code and may write to standard error.
#pragma once
#include <optional>
#include <string>

#include "spawn/agent_link.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

class CommandLink : public AgentLink {
 public:
  // How the command ended. Set before `from_agent` ends; nullopt when the transport broke first, or we cut the
  // connection.
  virtual std::optional<ExitCause> cause() const = 0;
  // The last 8 KiB of its standard error so far, where the link keeps it.
  virtual std::string errors() const = 0;
};

}  // namespace dslaunch::spawn
