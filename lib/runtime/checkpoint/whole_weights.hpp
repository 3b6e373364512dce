// All weights of a checkpoint in one safetensors file, streamed within the memory of a WeightStream.
// One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

class CheckpointReader;

struct WholeWeights {
  std::optional<at::ScalarType> float_dtype;  // of floating-point parameters and buffers; empty: the model's own
};

// Writes FOLDER/NAME and flushes it. Tied parameters appear under each of their names. Throws UserError(65) when a part
// is missing or damaged, SystemError (73, 74).
CheckpointFile write_whole_weights(CheckpointReader& checkpoint, const WholeWeights& how, const std::string& folder,
                                   const std::string& name);

}  // namespace dslaunch::runtime
