// The guard of an agent: the process that another dslaunch started becomes the guard, and the agent its child. The
// agent ends what its ranks leave behind; when it is killed itself, the kernel reparents all of that to the guard, even
// processes in a new session with a cleared environment, which nothing else would find. An agent that is stopped
// (SIGSTOP) cannot end its ranks when its launcher is gone: the guard continues it. One thread.
#pragma once
#include <chrono>

namespace dslaunch::launch {

// Call before there are threads; standard input is the channel from the launcher. Returns in the agent; the calling
// process waits for it, without the agent's other descriptors, and exits as the agent did. If the system cannot create
// a process there is no guard. `stop_limit`: for how long an agent without a launcher may be stopped.
void put_under_guard(std::chrono::milliseconds stop_limit = std::chrono::seconds(10));

}  // namespace dslaunch::launch
