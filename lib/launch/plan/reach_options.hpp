// The options for links to other machines, for the command line and for the plan.
#pragma once
#include <chrono>
#include <string>

#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::launch {

// The default time for a host's agent to greet: the connection, then a slow login shell, a busy file server.
inline constexpr std::chrono::milliseconds kDefaultGreetingTimeout{35'000};

struct ReachOptions {
  spawn::SshOptions ssh;
  // From the start of the connection to the greeting of the host's agent.
  std::chrono::milliseconds greeting_timeout = kDefaultGreetingTimeout;
  std::string remote_path;                         // directory of the programs there; empty: the same as here
  bool push = false;                               // copy the programs there
  std::chrono::milliseconds silence_limit{20000};  // a host silent for so long is lost
};

}  // namespace dslaunch::launch
