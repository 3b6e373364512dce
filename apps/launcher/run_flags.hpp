// The options of `run` that have a row in the table of run flags.
#pragma once
#include <string>

#include "command_line.hpp"
#include "config/run_flags.hpp"

namespace dslaunch::launcher {

// Declares the flags of one group; those that are given are set in `flags`.
void add_run_flags(CommandLine& line, config::FlagGroup group, config::RunFlags& flags);
// Throws UserError(64) for a number below the flag's minimum.
void check_run_flags(const config::RunFlags& flags);

}  // namespace dslaunch::launcher
