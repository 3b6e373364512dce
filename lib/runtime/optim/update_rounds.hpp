// Rounds of the CPU optimizers over host memory, beside moving the same bytes without computing anything: for `dslaunch
// bench adam` and bench/cpu_adam. Gradients in bf16, fp16 or fp32; parameters in bf16 are written in the same pass. One
// thread. Nothing of LibTorch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/optim/host_update.hpp"
#include "runtime/state/thread_team.hpp"

namespace dslaunch::runtime::optim::host {

enum class RoundOptimizer { kAdam, kAdagrad, kLion, kSgdMomentum };
enum class RoundWork {
  kUpdate,
  kStream,  // the bytes of the update, with non-temporal stores
  kCopy,    // with ordinary stores to the lines that were read
};

// Read and written for each element.
int64_t bytes_of_update(RoundOptimizer optimizer, ElementType gradient);

class UpdateRounds {
 public:
  // Takes 28 bytes of memory for each of `count` elements, rounded down to 32,768, at least that many; `team` writes
  // them first, so that they come from the NUMA nodes of its threads. In 2 MiB pages, or ordinary ones. Throws
  // SystemError (69) where the system refuses.
  UpdateRounds(int64_t count, ThreadTeam& team, bool huge_pages);
  ~UpdateRounds();
  UpdateRounds(const UpdateRounds&) = delete;
  UpdateRounds& operator=(const UpdateRounds&) = delete;

  int64_t count() const { return range_.count; }
  // One pass over all elements by the threads of `team`.
  void run(ThreadTeam& team, RoundWork work, RoundOptimizer optimizer, ElementType gradient);

 private:
  struct Mapped {
    void* address = nullptr;
    size_t bytes = 0;
  };
  template <class T>
  T* allocate(bool huge_pages);
  Range with_gradient(ElementType type) const;

  std::vector<Mapped> mapped_;
  Range range_;  // without a gradient
  float* gradient_fp32_ = nullptr;
  uint16_t* gradient_half_ = nullptr;
};

}  // namespace dslaunch::runtime::optim::host
