// The way to the agent of this machine: a child of the launcher, spoken to over its standard input and output, the same
// two streams that a remote shell would carry.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/program/program_link.hpp"

namespace dslaunch::spawn {

// Starts `argv` (an absolute path first) with our environment and standard error. It outlives us for as long as it
// needs to tidy up: it sees our end by that of its standard input. Throws SystemError.
// `inherited`: a descriptor that it gets under the same number; -1: none.
std::unique_ptr<ProgramLink> open_local_link(const std::vector<std::string>& argv, int inherited = -1);

}  // namespace dslaunch::spawn
