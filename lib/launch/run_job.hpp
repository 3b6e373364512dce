// `dslaunch run`: checks everything that can be checked before a rank starts, and launches the workers.
#pragma once
#include <string>
#include <vector>

#include "launch/launch_options.hpp"

namespace dslaunch::launch {

// The worker's command line: every option as "--name value". Paths are absolute, so that --chdir moves nothing.
std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir);

// The whole command. The exit code of dslaunch.
int run_job(const RunOptions& run);

}  // namespace dslaunch::launch
