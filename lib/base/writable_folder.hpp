// Checks whether a directory, or a file, can be written or created, before hours of work whose result goes there.
#pragma once
#include <string>

namespace dslaunch {

// Empty when the directory, or its nearest existing parent, accepts new entries; else the reason. Any thread.
std::string why_not_writable(const std::string& folder);

// The same for one file. Any thread.
std::string why_not_writable_file(const std::string& path);

}  // namespace dslaunch
