// The moments of a span of optimizer state, as they are before the first step.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

// Fills state.arrays.moments beside the master: on its device, and at the same address modulo 16 bytes, so that vector
// kernels see all arrays with the same alignment. `zeros`: makes the memory, fp32 and zero; empty: on the master's
// device.
void allocate_moments(const FlatOptimizer& optimizer, SpanState& state,
                      const std::function<at::Tensor(int64_t numel)>& zeros = {});

// The same for a span whose state is stored: its moments get their initial values there.
void write_initial_moments(const FlatOptimizer& optimizer, const SpanState& state);

}  // namespace dslaunch::runtime::optim
