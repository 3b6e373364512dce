// A model's code and buffers with all parameters emptied, a few kB: a checkpoint's part of the model file.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::model::file {

// Empties the parameters of `module`. `metadata`: of its model file, kept in the skeleton. Throws SystemError when the
// file cannot be written.
void write_skeleton_file(const torch::jit::Module& module, const ModelMetadata& metadata, const std::string& path);

}  // namespace dslaunch::runtime::model::file
