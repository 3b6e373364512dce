// SIGTERM, SIGINT and SIGUSR1 ask for a clean stop at the end of a step. After SIGTERM or SIGINT a second one of these
// two ends the process at once. SIGUSR1 never does, nor what follows it first: by it a scheduler says in advance that
// the end comes, and then sends SIGTERM, while the ranks may be saving.
#pragma once

namespace dslaunch::worker {

void install_stop_signals();
bool stop_requested();
// The first signal that asked; 0: none.
int stop_signal();

}  // namespace dslaunch::worker
