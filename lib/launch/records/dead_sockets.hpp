// Control sockets of launchers that were killed before they could remove them.
#pragma once
#include <string>

namespace dslaunch::launch {

// Removes this user's sockets in the socket directory that have no listener. Sockets of live launchers are kept, also
// those of another host that shares the directory: on a file system shared between hosts nothing is removed. Reports
// nothing, throws nothing; several processes may call it at the same time.
void remove_dead_sockets();

}  // namespace dslaunch::launch
