// What the user should know about an error in a model's forward: the operator that failed, and advice. Any thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <string>
#include <vector>

#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::model::torchscript {

// For an error of an operator that was given different floating-point types: "encoder.block.0.mlp: linear takes
// operands of one type, and got fp32 and bf16". Empty for other errors, and if the operator cannot be located.
std::string describe_type_mismatch(const torch::jit::Module& model, const std::exception& error);

// A sentence to append to `cause`; empty without advice. `inputs`: the inputs of forward. `is_half_file`: the
// model's file has parameters in half precision. Uses this thread's current autocast state for `device`.
std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, bool is_half_file,
                           at::DeviceType device);

// The first argument whose samples are of another size than the exporter recorded ("argument 'x' has samples of the
// size [9], and the model file records [6]"); empty: there is none. `recorded`: by argument, without a name where
// nothing is recorded.
std::string describe_size_mismatch(const std::vector<at::Tensor>& inputs, const std::vector<RecordedInput>& recorded);

}  // namespace dslaunch::runtime::model::torchscript
