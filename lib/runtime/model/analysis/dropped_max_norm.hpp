// torch.jit.script silently drops the renormalisation of an embedding with max_norm: the call in the file still has the
// number, but the called function no longer applies it. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime::model::analysis {

// The paths (empty: the model itself) of modules that call F.embedding or F.embedding_bag with a max_norm. Needs a
// loaded copy of the model in which no call has been inlined.
std::vector<std::string> find_dropped_max_norm(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::analysis
