// Finds the file that a program name refers to, with the search of execvp(3), but with an explainable result.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::spawn {

// The files to try in order: `name` itself when it contains a '/', otherwise one for each directory of `path` (an empty
// entry is the current directory). A relative name is relative to the working directory at the time of exec.
std::vector<std::string> program_candidates(const std::string& name, const std::string& path);

}  // namespace dslaunch::spawn
