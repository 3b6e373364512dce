// The agent of this machine: a child of the launcher, spoken to over its standard input and output, the same two
// streams that a remote shell would carry.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

struct AgentProcess {
  pid_t pid = -1;
  UniqueFd pidfd;       // readable once the agent has ended
  UniqueFd to_agent;    // its standard input
  UniqueFd from_agent;  // its standard output, non-blocking
};

// Starts `argv` (an absolute path first) with our environment and standard error, in a session of its own, so that a
// Ctrl-C at the terminal reaches the launcher only. Throws SystemError.
AgentProcess start_local_agent(const std::vector<std::string>& argv);

}  // namespace dslaunch::spawn
