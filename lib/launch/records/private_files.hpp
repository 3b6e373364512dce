// Directories and files with access for this user only (0700, 0600). Any thread.
#pragma once
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

// Creates the directory and its missing parents, all 0700. Throws SystemError(73) when that fails, or when the existing
// path belongs to another user.
void make_private_dir(const std::string& path);

// Writes the whole file atomically: to a temporary file that is then renamed, so that no reader sees half of it. On a
// full disk, overwrites the existing file in place if the text fits into its blocks. Throws SystemError.
void write_private_file(const std::string& path, std::string_view text);

// Opens for appending; creates the file if missing. Not valid (errno is set) when that fails.
UniqueFd open_private_log(const std::string& path);

}  // namespace dslaunch::launch
