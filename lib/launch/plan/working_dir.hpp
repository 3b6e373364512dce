// The working directory that this program was started in, and how paths are resolved against it.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

// Throws UserError(66) when the directory has been removed; `hint` is appended to the advice to change to another
// directory.
std::string working_dir(std::string_view hint = "");

// Absolute and without "." and ".."; an empty path stays empty. Throws UserError(66) for a relative path when the
// working directory has been removed.
std::string absolute_path(const std::string& path);

}  // namespace dslaunch::launch
