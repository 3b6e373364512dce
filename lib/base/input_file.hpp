// Input files that a job's options and config name. The launcher, which checks them before it removes anything, and the
// worker give the same messages. Any thread.
#pragma once
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace dslaunch {

// Opens a regular file for reading. `what` ("data file") begins the error message. Throws UserError(66).
UniqueFd open_input_file(const std::string& path, const std::string& what);

// Expands globs in sorted order; a plain path stands for itself, whether it exists or not. A file with exactly the
// pattern's name wins over the pattern. Relative paths start at `directory`, which is not a pattern itself, or at the
// working directory. Throws UserError(66) for a pattern that matches nothing.
std::vector<std::string> expand_globs(const std::vector<std::string>& patterns, const std::string& what,
                                      const std::string& directory = {});

}  // namespace dslaunch
