// Which version of the user's own code a run was started from.
#pragma once
#include <string>

namespace dslaunch::launch {

// The commit that is checked out in the Git repository around `dir`, as its files say; empty: none, or it cannot be
// read. Starts no program.
std::string git_commit_of(const std::string& dir);

}  // namespace dslaunch::launch
