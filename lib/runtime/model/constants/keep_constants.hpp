// Finds the parts of a model's graphs that depend on nothing but sizes, constants and buffers, and makes each of them
// a ConstantRegion.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "runtime/model/constants/constant_region.hpp"

namespace dslaunch::runtime::model::constants {

// Call when the graphs are final, before their first run: a region keeps a copy of its operators. Calls of submodules
// without parameters that compute such values (rotary embeddings) are inlined. A buffer counts as constant where only
// operators read it that cannot write to it; its version counter is watched nevertheless. Returns the number of
// regions.
int keep_constants(const torch::jit::Module& model, const RegionContext& context);

}  // namespace dslaunch::runtime::model::constants
