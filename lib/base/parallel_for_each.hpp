// Runs the same work for several items at once, each in its own thread: for waiting on hosts, not for computing.
#pragma once
#include <cstddef>
#include <functional>

namespace dslaunch {

// Calls work(0) ... work(count - 1) and returns when all have ended. Rethrows the exception of the lowest-numbered call
// that threw. Throws std::system_error (see described_error.hpp), after the running calls end, when the system refuses
// a thread.
void parallel_for_each(size_t count, const std::function<void(size_t)>& work);

}  // namespace dslaunch
