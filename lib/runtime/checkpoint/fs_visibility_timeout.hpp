// How long may a file system hide from this host what another one has just made? Any thread.
#pragma once
#include <chrono>
#include <string>

namespace dslaunch::runtime {

// For what is made in `folder`, which need not be there yet.
std::chrono::milliseconds fs_visibility_timeout(const std::string& folder);

}  // namespace dslaunch::runtime
