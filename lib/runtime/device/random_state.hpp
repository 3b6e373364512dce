// The random number generators of this rank (dropout and similar): seeded at startup, saved in checkpoints.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::device {

// Different on every rank, the same in every run: ranks draw independent numbers.
void seed_random_state(uint64_t seed, int rank, at::Device device);
// One 1-D uint8 tensor on the host: the state of the host's generator, then of the device's. While the device's work is
// captured as a CUDA graph, its part is the place within the graph's random numbers, and can be restored only there.
at::Tensor save_random_state(at::Device device);
void restore_random_state(const at::Tensor& state, at::Device device);

}  // namespace dslaunch::runtime::device
