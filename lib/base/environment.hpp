// The environment of this process as data.
#pragma once
#include <map>
#include <string>

namespace dslaunch {

// Must not run while another thread changes the environment.
std::map<std::string, std::string> environment_of_this_process();

}  // namespace dslaunch
