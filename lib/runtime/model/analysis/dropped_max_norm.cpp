#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "runtime/model/analysis/index_bounds_analysis.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Node;

bool gives_max_norm(const Node* node) {
  if (node->kind() != c10::prim::CallFunction) return false;
  const auto type = node->input(0)->type()->cast<c10::FunctionType>();
  if (!type) return false;
  const auto& name = type->function()->qualname().qualifiedName();
  if (name != "__torch__.torch.nn.functional.embedding" && name != "__torch__.torch.nn.functional.embedding_bag") {
    return false;
  }
  const auto argument = type->function()->getSchema().argumentIndexWithName("max_norm");
  if (!argument || static_cast<size_t>(*argument) + 1 >= node->inputs().size()) return false;
  const auto given = torch::jit::toIValue(node->input(*argument + 1));
  return given && given->isDouble();
}

// The operation that scripting drops, written by hand.
bool renormalizes(const Node* node) {
  return node->kind() == c10::Symbol::fromQualString("aten::embedding_renorm_");
}

}  // namespace

std::vector<std::string> find_dropped_max_norm(const torch::jit::Module& model) {
  std::vector<std::string> out;
  for (const auto& module : model.named_modules()) {
    for (auto* method : module.value.type()->methods()) {
      if (!method->isGraphFunction()) continue;
      method->ensure_defined();
      const auto* block = torch::jit::toGraphFunction(*method).graph()->block();
      if (!graph::any_node(block, gives_max_norm) || graph::any_node(block, renormalizes)) continue;
      out.push_back(module.name);
      break;
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::model::analysis
