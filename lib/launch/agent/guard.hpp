// The guard of an agent: the process that another dslaunch has started becomes it, and the agent is its child. The
// agent ends what its ranks leave behind; when it is killed itself, the kernel hands all of that to the guard, also
// what has cleared its environment and made a session of its own, by which nobody else would find it. One thread.
#pragma once

namespace dslaunch::launch {

// Before there are threads. Returns in the agent; the calling process waits for it, without the agent's descriptors,
// and ends as the agent did. Where the system gives no process for it there is no guard.
void put_under_guard();

}  // namespace dslaunch::launch
