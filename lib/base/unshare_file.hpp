// Files that a run writes under names of its own, where somebody may have put a link to a file elsewhere. Any thread.
#pragma once
#include <string>

namespace dslaunch {

// Removes a symbolic link of this name, so that what is then written there changes no other file. Whoever opens the
// path afterwards reports errors.
void remove_symbolic_link(const std::string& path);

// The same before a file is written from scratch; also removes a file that has other names (hard links), as in a copy
// of a run directory that shares its files.
void unshare_file(const std::string& path);

}  // namespace dslaunch
