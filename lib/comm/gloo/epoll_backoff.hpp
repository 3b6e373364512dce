// Changes how libgloo polls its connections; see epoll_backoff.cpp.
#pragma once

namespace dslaunch::comm {

// Whether libgloo has called our epoll_wait rather than libc's. Any thread.
bool polls_patiently();

}  // namespace dslaunch::comm
