// Options with the names of `deepspeed` and `torchrun` for settings that `run` and `exec` name differently, and those
// about cores. docs/migrating.md lists them.
#pragma once
#include <string>
#include <vector>

#include "command_line.hpp"
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launcher {

// The option values as given.
struct CompatOptions {
  std::string nnodes, ranks_of_node, core_list, numa_binding;
  bool bind_cores = false, ignored = false;
};

void add_compat_options(CommandLine& line, CompatOptions& raw);

// Takes options that are not needed here out of the words, and turns --deepspeed F into --config F. Returns a line for
// each option that was taken out.
std::vector<std::string> drop_not_needed(std::vector<std::string>& words);

// Call after the other options were read. Throws UserError(64).
void finish_compat_options(launch::LaunchOptions& to, const CompatOptions& raw);

}  // namespace dslaunch::launcher
