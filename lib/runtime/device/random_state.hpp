// The random number generators of this rank (dropout and similar): seeded at startup, saved in checkpoints.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::device {

// Different for every `rank`, the same in every run: such ranks draw independent numbers. Tensor ranks, which compute
// with the same values, pass the same one.
void seed_random_state(uint64_t seed, int rank, at::Device device);
// One 1-D uint8 tensor on the host: the state of the host's generator, then of the device's. While the device's work is
// captured as a CUDA graph, its part is the place within the graph's random numbers, and can be restored only there.
at::Tensor save_random_state(at::Device device);
void restore_random_state(const at::Tensor& state, at::Device device);

// While it exists, what this thread draws on the device is drawn by this rank of a group alone; afterwards the stream
// that the ranks of the group share continues behind it, alike on all of them, however much each has drawn (at most
// 2^17 of CUDA's offsets). What is drawn follows from the shared stream and the rank. One at a time.
class RankRandomScope {
 public:
  RankRandomScope(at::Device device, int rank, int num_ranks);
  ~RankRandomScope();
  RankRandomScope(const RankRandomScope&) = delete;
  RankRandomScope& operator=(const RankRandomScope&) = delete;

 private:
  const at::Device device_;
  at::Tensor after_;           // of the host's generator: its state afterwards
  uint64_t offset_after_ = 0;  // of the device's
};

}  // namespace dslaunch::runtime::device
