// Options in the words of `deepspeed` and `torchrun` for what `run` and `exec` know by other names, and those about
// cores. docs/migrating.md lists them.
#pragma once
#include <string>

#include "command_line.hpp"
#include "launch/launch_options.hpp"

namespace dslaunch::launcher {

// As written.
struct BorrowedOptions {
  std::string nnodes, ranks_of_node, core_list, numa_binding;
  bool bind_cores = false, ignored = false;
};

void add_borrowed_options(CommandLine& line, BorrowedOptions& raw);

// After the other options were read. Throws UserError(64).
void finish_borrowed_options(launch::LaunchOptions& to, const BorrowedOptions& raw);

}  // namespace dslaunch::launcher
