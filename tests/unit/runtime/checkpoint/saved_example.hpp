// A small model's state for checkpoint tests: "w" [5, 2] and "tied" [3] trainable, "f" [2] frozen, "count" a buffer.
// Element i of a state holds step * 1000 + i, so every value tells where and when it was saved.
#pragma once
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_writer.hpp"

namespace dslaunch::test {

inline at::Tensor example_values(int64_t step, int64_t begin, int64_t end) {
  return at::arange(begin, end, at::kFloat) + static_cast<double>(step * 1000);
}

inline std::vector<runtime::SavedTensor> example_parameters() {
  return {{.name = "w", .shape = {5, 2}, .dtype = at::kFloat},
          {.name = "inner.tied", .shape = {3}, .dtype = at::kBFloat16, .aliases = {"head"}},
          {.name = "f", .shape = {2}, .dtype = at::kFloat, .trainable = false},
          {.name = "count", .shape = {}, .dtype = at::kLong, .trainable = false, .is_buffer = true}};
}

// "w" is split among the ranks as evenly as it goes; rank 0 has the rest.
inline runtime::CheckpointPart example_part(int64_t step, int rank, int world_size) {
  runtime::CheckpointPart part;
  const int64_t begin = 10 * rank / world_size, end = 10 * (rank + 1) / world_size;
  for (const char* state : {"master", "exp_avg"}) {
    if (end > begin) part.pieces.push_back({"w", state, begin, example_values(step, begin, end)});
  }
  if (rank == 0) {
    part.pieces.push_back({"inner.tied", "master", 0, example_values(step, 0, 3)});
    part.pieces.push_back({"f", "frozen", 0, example_values(step, 0, 2)});
    part.pieces.push_back({"count", "buffer", 0, at::full({1}, step, at::kLong)});
  }
  part.rng_state = "rng of rank " + std::to_string(rank) + std::string("\0\xff", 2);
  part.metadata.step = step;
  part.metadata.parameters = example_parameters();
  part.metadata.position = {2, 17};
  part.metadata.scalars = {{"lr", 0.1 + 0.2}, {"loss_scale", 65536}};
  part.metadata.config = "{\"train\": \"größe\"}";
  return part;
}

}  // namespace dslaunch::test
