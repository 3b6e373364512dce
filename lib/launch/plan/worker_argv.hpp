// Expresses the options of `run` in two forms: as overrides of the config, which are checked here together with it, and
// as the worker's command line, from which the worker makes the same overrides. Paths are absolute, so that --chdir
// does not change their meaning. Pure, except that it checks whether a flag such as --loss names a file.
#pragma once
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

std::vector<config::Override> overrides_of(const RunOptions& run);

// Every option as "--name value".
std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir);

}  // namespace dslaunch::launch
