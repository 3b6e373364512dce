// What the ways to other machines need: as the command line says it, and as the plan keeps it.
#pragma once
#include <chrono>
#include <string>

#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::launch {

// How long a host's agent may take to greet when nobody says otherwise: the connection, then a slow login shell, a busy
// file server.
inline constexpr std::chrono::milliseconds kDefaultGreetingTimeout{35'000};

struct ReachOptions {
  spawn::SshOptions ssh;
  // From the start of the connection to the greeting of the host's agent.
  std::chrono::milliseconds greeting_timeout = kDefaultGreetingTimeout;
  std::string remote_path;                         // folder of the programs there; empty: the same as here
  bool push = false;                               // copy the programs there
  std::chrono::milliseconds silence_limit{20000};  // a host without a sign of life for so long is lost
};

}  // namespace dslaunch::launch
