// The memory of CPU tensors: PyTorch's CPU allocator does not count what it gives out; this one does, in its place. Any
// thread.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace dslaunch::runtime {

struct Allocated {  // bytes
  int64_t now = 0, peak = 0;
};

class CountingAllocator final : public c10::Allocator {
 public:
  // For the rest of the process: tensors of the allocator may outlive any scope. Tensors of an earlier time are not
  // counted.
  static CountingAllocator& install();

  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  Allocated read() const;
  void reset_peak();

 private:
  CountingAllocator();
  static void release(void* data);

  c10::Allocator& plain_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;  // guarded
  Allocated allocated_;                      // guarded
};

}  // namespace dslaunch::runtime
