// Produces whole weights from a sharded checkpoint, within a memory limit. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/weight_files.hpp"

namespace dslaunch::runtime {

struct ConsolidateOptions {
  std::string checkpoint;  // a checkpoint, or a directory of checkpoints (then the newest)
  // The extension selects the form:
  //   .safetensors   all parameters and buffers
  //   .pt            the model as TorchScript with the trained weights
  //   .bin, .pt with `state_dict`   name -> tensor, for torch.load(weights_only=True)
  std::string out;
  bool state_dict = false;
  uint64_t max_memory_bytes = uint64_t{1} << 30;  // for weights, besides the program itself; at least 16 MB
  uint64_t max_shard_bytes = 0;                   // beyond this, several files and an index; 0: one file
  bool exclude_frozen = false;
  std::optional<at::ScalarType> dtype;  // of floating-point tensors; empty: the model's own
  // Called before anything is written, with the temporary names of the files until they are renamed.
  std::function<void(const std::vector<std::string>& unfinished)> before_writing;
};

// Tied parameters appear under each of their names. Everything is written to temporary files and then renamed; returns
// them. Throws UserError: 64 for another extension and for options that exclude each other, 66 and 65 for the
// checkpoint; SystemError 73, 74 for the output.
WrittenWeights consolidate(const ConsolidateOptions& options);

}  // namespace dslaunch::runtime
