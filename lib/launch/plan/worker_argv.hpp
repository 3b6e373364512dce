// What the options of `run` say, in the two tongues that need it: as overrides of the config, which is checked here
// with them, and as the worker's command line, which makes the same overrides of them. Paths are absolute, so that
// --chdir moves nothing. Pure, but for looking whether --loss names a file.
#pragma once
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "launch/launch_options.hpp"

namespace dslaunch::launch {

std::vector<config::Override> overrides_of(const RunOptions& run);

// Every option as "--name value".
std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir);

}  // namespace dslaunch::launch
