// The same work for several things at once, each in a thread of its own: for waiting on hosts, not for computing.
#pragma once
#include <cstddef>
#include <functional>

namespace dslaunch {

// Calls work(0) ... work(count - 1) and returns when all have ended. Throws what one of them threw, the first by
// number; std::system_error (see thread_error.hpp) when the system refuses a thread, once those that run have ended.
void parallel_for_each(size_t count, const std::function<void(size_t)>& work);

}  // namespace dslaunch
