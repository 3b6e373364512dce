// torch.jit.script leaves the renormalisation of an embedding with max_norm out without a word: the call in the file
// still has the number, the function that it calls has lost what it does. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

// The paths (empty: the model itself) of modules that call F.embedding or F.embedding_bag with a max_norm. Wants a
// reading of the model in which nothing has been put in line.
std::vector<std::string> find_dropped_max_norm(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
