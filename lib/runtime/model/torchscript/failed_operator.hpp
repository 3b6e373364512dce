// Locates an operator that failed in a model's forward by the traceback that TorchScript puts into its error.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <string>

namespace dslaunch::runtime::model::torchscript {

// For an error of an operator that was given different floating-point types: "encoder.block.0.mlp: linear takes
// operands of one type, and got fp32 and bf16". Empty for other errors, and if the operator cannot be located.
std::string describe_type_mismatch(const torch::jit::Module& model, const std::exception& error);

}  // namespace dslaunch::runtime::model::torchscript
