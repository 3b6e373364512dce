#include "runtime/state/parallel_ranges.hpp"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "compile this file with -fopenmp: at::parallel_for is serial without it"
#endif

namespace dslaunch::runtime {

void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work) {
  at::parallel_for(0, count, grain, work);
}

}  // namespace dslaunch::runtime
