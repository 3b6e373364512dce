// Folders and files of this user alone (0700, 0600). Any thread.
#pragma once
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

// Makes the folder and what is missing above it, all 0700. Throws SystemError(73) when that fails, or when what is
// there belongs to another user.
void make_private_folder(const std::string& path);

// The whole file at once: written aside and renamed, so that no reader sees half of it. On a full disk over the file
// that is there, where the text needs no more room than that has. Throws SystemError.
void write_private_file(const std::string& path, std::string_view text);

// For appending; made where it is missing. Not valid (errno says why) when that fails.
UniqueFd open_private_log(const std::string& path);

}  // namespace dslaunch::launch
