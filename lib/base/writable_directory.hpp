// Checks whether a directory, or a file, can be written or created, before hours of work whose result goes there.
#pragma once
#include <string>

#include "base/result.hpp"

namespace dslaunch {

// Succeeds when the directory, or its nearest existing parent, accepts new entries. Any thread.
Result<> check_writable(const std::string& directory);

// The same for one file. Any thread.
Result<> check_writable_file(const std::string& path);

}  // namespace dslaunch
