// One micro batch on the engine's device.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime::engine::setup {

struct MicroBatch {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> labels;
  int64_t num_tokens = 0;
  int64_t num_labels = 0;  // labels that count: with cross_entropy all but ignored labels (-100)
};

}  // namespace dslaunch::runtime::engine::setup
