#include "runtime/model/dropped_max_norm.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace dslaunch::runtime {
namespace {

using torch::jit::Block;
using torch::jit::Node;

bool gives_max_norm(const Node* node) {
  if (node->kind() != c10::prim::CallFunction) return false;
  const auto type = node->input(0)->type()->cast<c10::FunctionType>();
  if (!type) return false;
  const auto& name = type->function()->qualname().qualifiedName();
  if (name != "__torch__.torch.nn.functional.embedding" && name != "__torch__.torch.nn.functional.embedding_bag") {
    return false;
  }
  const auto place = type->function()->getSchema().argumentIndexWithName("max_norm");
  if (!place || static_cast<size_t>(*place) + 1 >= node->inputs().size()) return false;
  const auto given = torch::jit::toIValue(node->input(*place + 1));
  return given && given->isDouble();
}

bool any_gives_max_norm(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(), [](const Node* node) {
    return gives_max_norm(node) || std::any_of(node->blocks().begin(), node->blocks().end(), any_gives_max_norm);
  });
}

}  // namespace

std::vector<std::string> find_dropped_max_norm(const torch::jit::Module& model) {
  std::vector<std::string> out;
  for (const auto& module : model.named_modules()) {
    for (auto* method : module.value.type()->methods()) {
      if (!method->isGraphFunction()) continue;
      method->ensure_defined();
      if (!any_gives_max_norm(torch::jit::toGraphFunction(*method).graph()->block())) continue;
      out.push_back(module.name.empty() ? "the model itself" : module.name);
      break;
    }
  }
  return out;
}

}  // namespace dslaunch::runtime
