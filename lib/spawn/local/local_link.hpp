// The transport to the agent on this machine: a child of the launcher, connected by its standard input and output, the
// same two streams that a remote shell would carry.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/program/program_link.hpp"

namespace dslaunch::spawn {

// Starts `argv` (an absolute path first) with our environment and standard error. The agent may outlive this process
// for as long as it needs to clean up: it detects our end by the end of its standard input. Throws SystemError.
// `inherited`: a descriptor that the agent gets under the same number; -1: none.
std::unique_ptr<ProgramLink> open_local_link(const std::vector<std::string>& argv, int inherited = -1);

}  // namespace dslaunch::spawn
