// Incomplete output files: Ctrl-C, SIGTERM and the end of a terminal remove them, then end the program as usual.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::worker {

// Call once, from the main thread. Missing `paths` are ignored. A directory is removed only if it is empty by then, so
// list the files that it may hold before it.
void remove_when_ended(std::vector<std::string> paths);

}  // namespace dslaunch::worker
