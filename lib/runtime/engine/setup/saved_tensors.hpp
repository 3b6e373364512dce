// A model's parameters and buffers as a checkpoint's manifest lists them.
#pragma once
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::setup {

std::vector<SavedTensor> saved_tensors_of(const model::Model& model);

}  // namespace dslaunch::runtime::engine::setup
