// Files that a job's options and config name to be read, in words that the launcher, which looks before it removes
// anything, and the worker have in common. Any thread.
#pragma once
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace dslaunch {

// A regular file, open for reading. `what` it is ("data file") begins the message. Throws UserError(66).
UniqueFd open_input_file(const std::string& path, const std::string& what);

// Globs are expanded in sorted order; a plain path stands for itself, whether it exists or not. A file of that very
// name wins over the pattern. Relative ones are those of `folder`, which is no pattern itself, or of the process.
// Throws UserError(66) for a pattern that matches nothing.
std::vector<std::string> expand_globs(const std::vector<std::string>& patterns, const std::string& what,
                                      const std::string& folder = {});

}  // namespace dslaunch
