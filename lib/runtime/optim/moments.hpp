// The moments of a span of optimizer state, as they are before the first step.
#pragma once
#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

// Fills state.arrays.moments beside the master: on its device, and at the same address modulo 16 bytes, so that vector
// kernels see all arrays with the same alignment.
void allocate_moments(const FlatOptimizer& optimizer, SpanState& state);

}  // namespace dslaunch::runtime::optim
