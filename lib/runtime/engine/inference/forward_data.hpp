// A model's forward over the samples of data files, and its outputs in a file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/inference/infer_model.hpp"

namespace dslaunch::runtime::engine::inference {

struct ForwardOptions {
  std::string data;                         // a path or a glob, in the formats of data.train
  std::vector<std::string> inputs, labels;  // arrays in the order of forward; empty: by name
  std::string outputs;                      // a safetensors file to write
  int64_t batch = 8;                        // samples at once
};

struct ForwardSummary {
  int64_t num_samples = 0;
  struct Output {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<Output> outputs;
};

// Writes each tensor that forward returns under its name ("output": forward returns one): those of all samples joined
// along the first dim, those without dims (a loss) one for each batch. `model`: with the forward of its file. Throws
// UserError as open_training_data(), and 65 for outputs whose shapes differ between batches; SystemError 73 and 74.
ForwardSummary write_forward_outputs(InferModel& model, at::Device device, const ForwardOptions& options);

}  // namespace dslaunch::runtime::engine::inference
