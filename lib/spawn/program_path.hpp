// Which file a program's name means, the way execvp(3) searches, but with an answer that explains itself.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::spawn {

// The files to try in order: `name` itself when it holds a '/', else one for each folder of `path` (an empty folder is
// the current one). A relative name is relative to the process's folder at the time of exec.
std::vector<std::string> program_candidates(const std::string& name, const std::string& path);

}  // namespace dslaunch::spawn
