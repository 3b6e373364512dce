// SIGTERM and SIGINT ask for a clean stop at the end of a step; a second one ends the process at once.
#pragma once

namespace dslaunch::worker {

void install_stop_signals();
bool stop_requested();
// The first signal that asked; 0: none.
int stop_signal();

}  // namespace dslaunch::worker
