// Parallel loops of host code in one place: with the calling thread's team (thread_team.hpp), else with LibTorch's
// threads. at::parallel_for runs on one thread in a file compiled without OpenMP.
#pragma once
#include <cstdint>
#include <functional>

namespace dslaunch::runtime {

// Splits [0, count) among the threads of the calling thread's ThreadTeam::Scope, else LibTorch's intra-op threads, in
// ranges of at least `grain` elements; returns when all have finished. Rethrows an exception of a range. A loop within
// a range is serial.
void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace dslaunch::runtime
