// Advice about an error in a model's forward, recognised by its message. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::model::torchscript {

// A sentence to append to `cause`; empty without advice. `inputs`: the inputs of forward. `is_half_file`: the
// model's file has parameters in half precision. Uses this thread's current autocast state for `device`.
std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, bool is_half_file,
                           at::DeviceType device);

// The first argument whose samples are of another size than the exporter recorded ("argument 'x' has samples of the
// size [9], and the model file records [6]"); empty: there is none. `recorded`: by argument, without a name where
// nothing is recorded.
std::string describe_size_mismatch(const std::vector<at::Tensor>& inputs, const std::vector<RecordedInput>& recorded);

}  // namespace dslaunch::runtime::model::torchscript
