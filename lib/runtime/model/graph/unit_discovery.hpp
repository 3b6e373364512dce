// Which modules are units: repeated blocks (children of one container with the same class, ignoring mangled names) and
// large leaf modules outside them; of nested candidates the outermost wins. Pure on the module tree.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "runtime/state/module_info.hpp"

namespace dslaunch::runtime::model::graph {

struct UnitCandidate {
  std::string path;
  torch::jit::Module module;
  bool is_block = true;  // false: a single large layer
};

// `names`: class names or module paths of units, instead of the automatic choice; an unknown name is a UserError(65).
std::vector<UnitCandidate> find_unit_candidates(const torch::jit::Module& model, const std::vector<std::string>& names);

// All modules, parents before their children.
std::vector<ModuleInfo> module_tree(const torch::jit::Module& model);

// "Block" for "__torch__.model.___torch_mangle_3.Block".
std::string class_name(const torch::jit::Module& module);

}  // namespace dslaunch::runtime::model::graph
