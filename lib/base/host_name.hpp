// This machine's own name, as the kernel reports it. Any thread.
#pragma once
#include <string>

namespace dslaunch {

// "localhost" where the kernel has no name.
std::string host_name();

}  // namespace dslaunch
