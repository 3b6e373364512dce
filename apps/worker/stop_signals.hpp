// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 request a clean stop at the end of a step. In a rank of `dslaunch run` all
// signals after the first are ignored as duplicates: a scheduler may signal the ranks as well as their launcher, which
// forwards the signal to the ranks, and the agent ends a rank that takes longer than --grace. Elsewhere (by hand, under
// torchrun), after SIGTERM or SIGINT, a second SIGTERM or SIGINT ends the process at once; not after SIGUSR1 or
// SIGUSR2: a scheduler announces the end with them in advance, and then sends SIGTERM, while the ranks may be saving.
#pragma once

namespace dslaunch::worker {

void install_stop_signals(bool has_agent);
bool stop_requested();
// The first signal that requested a stop; 0: none.
int stop_signal();

}  // namespace dslaunch::worker
