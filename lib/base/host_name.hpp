// This machine's own name, as its kernel has it. Any thread.
#pragma once
#include <string>

namespace dslaunch {

// "localhost" where it has none.
std::string host_name();

}  // namespace dslaunch
