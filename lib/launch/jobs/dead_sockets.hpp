// Control sockets of launchers that were killed: nobody was there to remove them.
#pragma once
#include <string>

namespace dslaunch::launch {

// Removes those of this user in the folder of sockets at which nobody listens any more. One that belongs to a launcher
// that lives stays, also to one of another host that sees the same folder: on a file system that hosts share nothing is
// removed. Says nothing, throws nothing; several processes may do so at once.
void remove_dead_sockets();

}  // namespace dslaunch::launch
