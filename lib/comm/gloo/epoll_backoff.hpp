// How libgloo waits for its connections; see epoll_backoff.cpp.
#pragma once

namespace dslaunch::comm {

// Has libgloo asked our epoll_wait, not libc's? Any thread.
bool polls_patiently();

}  // namespace dslaunch::comm
