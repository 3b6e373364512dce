// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask for a clean stop at the end of a step. In a rank of `dslaunch run` all that
// follow the first are echoes of it: a scheduler may tell the ranks beside their launcher, which tells them too, and
// the agent sees to the end of a rank that takes longer than --grace. Elsewhere (by hand, under torchrun), after
// SIGTERM or SIGINT, a second one of these two ends the process at once; not after SIGUSR1 or SIGUSR2: by those a
// scheduler says in advance that the end comes, and then sends SIGTERM, while the ranks may be saving.
#pragma once

namespace dslaunch::worker {

void install_stop_signals(bool has_agent);
bool stop_requested();
// The first signal that asked; 0: none.
int stop_signal();

}  // namespace dslaunch::worker
