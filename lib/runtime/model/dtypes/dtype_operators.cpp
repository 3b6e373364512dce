#include "runtime/model/dtypes/dtype_operators.hpp"

#include <torch/csrc/jit/ir/constants.h>

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool is_tensor_list(const Value* value) {
  if (value->type()->kind() != c10::TypeKind::ListType) return false;
  // Lists of optional tensors hold indices.
  return value->type()->expect<c10::ListType>()->getElementType()->isSubtypeOf(*c10::TensorType::get());
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::OptionalType::ofTensor()) && value->type()->kind() != c10::TypeKind::NoneType;
}

TypeRole role_of_cast(const Node* node) {
  if (input_named(node, "other")) return TypeRole::kTypeOf;
  const auto type = type_argument(node);
  if (!type) return TypeRole::kElements;  // only moves to a device
  if (!type->value) return torch::jit::toIValue(node->input(type->input)) ? TypeRole::kElements : TypeRole::kTypeOf;
  return at::isFloatingType(*type->value) ? TypeRole::kCast : TypeRole::kNoFloat;
}

}  // namespace

std::string_view operator_name(const Node* node) {
  if (!node->kind().is_aten()) return node->kind().toQualString();
  std::string_view name = node->kind().toUnqualString();
  if (operators::works_in_place(node->kind())) name.remove_suffix(1);
  return name;
}

std::optional<size_t> input_named(const Node* node, std::string_view name) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return std::nullopt;
  for (size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
    if (schema->arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

std::optional<TypeArgument> type_argument(const Node* node) {
  const auto input = input_named(node, "dtype");
  if (!input) return std::nullopt;
  const auto constant = torch::jit::toIValue(node->input(*input));
  if (constant && constant->isInt()) return TypeArgument{*input, constant->toScalarType()};
  if (constant && constant->isNone()) return std::nullopt;
  return TypeArgument{*input, std::nullopt};
}

TypeRole type_role(const Node* node) {
  const auto& traits = operators::traits(node->kind());
  if (traits.type == TypeRole::kCast) return role_of_cast(node);
  if (traits.type == TypeRole::kTypeOf || !node->kind().is_aten()) return traits.type;
  const auto type = type_argument(node);
  if (type && type->value && !at::isFloatingType(*type->value)) return TypeRole::kNoFloat;
  return type && traits.fills ? TypeRole::kFactory : traits.type;
}

std::vector<Operand> operands_of(Node* node) {
  std::vector<Operand> out;
  const bool only_first = operators::traits(node->kind()).only_first_has_elements;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    Value* input = node->input(i);
    if (is_tensor_list(input) && input->node()->kind() == c10::prim::ListConstruct) {
      for (size_t j = 0; j < input->node()->inputs().size(); ++j) out.push_back({input->node(), j});
    } else if (is_tensor(input) || is_tensor_list(input)) {
      out.push_back({node, i});
    }
    if (only_first && i == 0) break;
  }
  return out;
}

}  // namespace dslaunch::runtime::model::dtypes
