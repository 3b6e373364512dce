// Files that are written aside: Ctrl-C, SIGTERM and the end of a terminal take them away, and then end the program as
// they always do.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::worker {

// Once, from the main thread. Those of `paths` that are not there are no matter. A folder is removed when it is empty
// by then, so what it may hold stands before it.
void remove_when_ended(std::vector<std::string> paths);

}  // namespace dslaunch::worker
