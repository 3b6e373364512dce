// Without a team: what at::parallel_for does with several threads where it is compiled with OpenMP (without OpenMP it
// is serial). LibTorch's threads belong to libgomp, which not every compiler's -fopenmp uses, so libgomp is called by
// name.
#include "runtime/state/parallel_ranges.hpp"

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "runtime/state/thread_team.hpp"

// libgomp's interface, as `#pragma omp parallel` calls it: every thread of the team runs `body(data)`.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_num_threads();
int omp_get_thread_num();
}

namespace dslaunch::runtime {

namespace {

struct Loop {
  int64_t count, grain;
  const std::function<void(int64_t, int64_t)>& work;
  std::atomic_flag has_failed{};
  std::exception_ptr failure{};
};

// This thread's range of a Loop. An exception must not escape from the team's function.
void run_range(void* data) noexcept {
  auto& loop = *static_cast<Loop*>(data);
  const int64_t most = loop.grain > 0 ? at::divup(loop.count, loop.grain) : loop.count;
  const int64_t ranges = std::min<int64_t>(omp_get_num_threads(), most);
  const int64_t size = at::divup(loop.count, ranges);
  const int64_t begin = omp_get_thread_num() * size;
  if (begin >= loop.count) return;
  try {
    at::internal::ThreadIdGuard thread_id(omp_get_thread_num());
    c10::ParallelGuard operators_within_are_serial(true);
    loop.work(begin, std::min(loop.count, begin + size));
  } catch (...) {
    if (!loop.has_failed.test_and_set()) loop.failure = std::current_exception();
  }
}

}  // namespace

void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work) {
  if (count <= 0) return;
  if (count <= grain || at::in_parallel_region() || ThreadTeam::is_in_loop()) return work(0, count);
  if (ThreadTeam* team = ThreadTeam::of_this_thread()) return team->run(count, grain, work);
  if (at::get_num_threads() == 1) return work(0, count);
  Loop loop{count, grain, work};
  GOMP_parallel(run_range, &loop, 0, 0);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace dslaunch::runtime
