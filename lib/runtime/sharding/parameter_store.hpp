// Where gathered parameters rest in files between their uses (stage 3): this rank's slices of flat groups. What is read
// next is known from the order of the units, so it is read ahead into buffers of host memory.
//
// Threads: reads by the thread that runs the model or autograd's, one at a time; writes also by the thread of updates.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/state/stored_parameter.hpp"

namespace dslaunch::runtime {

// What of a group is in the store.
struct StoredSlice {
  int group = 0;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> spans;  // elements, one after another; an update writes within one

  int64_t numel() const {
    int64_t sum = 0;
    for (const int64_t each : spans) sum += each;
    return sum;
  }
};

class ParameterStore : public ParameterWriter {
 public:
  // Fills `slice` (1-D, of the slice's dtype, on any device) on the current stream. Returns when the bytes have been
  // read from the file; throws Error (74).
  virtual void read(int group, const at::Tensor& slice) = 0;
  // The next reads will be of these groups, in this order: begins them, as far as there are buffers, and drops what is
  // on its way of others. What is written meanwhile is read again.
  virtual void read_ahead(std::span<const int> groups) = 0;
  // The most groups that read_ahead() can use.
  virtual size_t max_ahead() const = 0;
};

}  // namespace dslaunch::runtime
