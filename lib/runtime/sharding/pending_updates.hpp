// Updates of parameters that have begun but need not have been written: those of offloaded state run beside the next
// step's forward, and early ones beside the backward of their own step. One thread at a time; it may be autograd's.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/state/state_arrays.hpp"
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime {

class PendingUpdates {
 public:
  virtual ~PendingUpdates() = default;
  // Returns when the last update of this rank's slice of the flat group is written to host memory, or its copies to the
  // device are enqueued: they end at the mark. Throws the error of an update that failed.
  virtual StreamMark wait(int group) = 0;

  // Whether begin_early() is wanted in the backward that runs.
  virtual bool takes_early_groups() const { return false; }
  // `group`: all spans of a flat group, with the sums of a step's gradients, which stay until its update is over. When
  // the current stream has reached this point, they have arrived, `squares` has too (the sum of their squares, 0-dim
  // fp64 on the host), and nothing of this step reads the group's parameters any more.
  virtual void begin_early([[maybe_unused]] std::span<const SpanState> group,
                           [[maybe_unused]] const at::Tensor& squares) {}
};

}  // namespace dslaunch::runtime
