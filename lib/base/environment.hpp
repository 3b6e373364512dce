// The environment of this process as data.
#pragma once
#include <map>
#include <string>

namespace dslaunch {

// Not while another thread changes it.
std::map<std::string, std::string> environment_of_this_process();

}  // namespace dslaunch
