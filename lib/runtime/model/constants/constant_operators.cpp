#include "runtime/model/constants/constant_operators.hpp"

#include <algorithm>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::constants {
bool is_free(const torch::jit::Node* node) {
  return operators::traits(node->kind()).purity == operators::Purity::kFree;
}

bool is_repeatable(const torch::jit::Node* node) {
  if (operators::traits(node->kind()).purity == operators::Purity::kUnknown) return false;
  if (!node->blocks().empty() || node->isNondeterministic()) return false;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return node->kind().is_prim();
  return std::none_of(schema->arguments().begin(), schema->arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

}  // namespace dslaunch::runtime::model::constants
