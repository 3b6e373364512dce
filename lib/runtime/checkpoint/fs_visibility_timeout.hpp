// How long a file system may hide from this host what another host has just created. Any thread.
#pragma once
#include <chrono>
#include <string>

namespace dslaunch::runtime {

// For files created in `directory`, which need not exist yet.
std::chrono::milliseconds fs_visibility_timeout(const std::string& directory);

}  // namespace dslaunch::runtime
