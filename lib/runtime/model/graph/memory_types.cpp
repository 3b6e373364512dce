#include "runtime/model/graph/memory_types.hpp"

#include <algorithm>
#include <string_view>

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Node;

const c10::Type& without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType ? *type->expectRef<c10::OptionalType>().getElementType() : *type;
}

// Null: the operator declares nothing.
const c10::FunctionSchema* declared_results(const Node* node) {
  const auto* schema = node->maybeSchema();
  const bool is_declared = schema != nullptr && !schema->is_vararg() && !schema->is_varret() &&
                           schema->returns().size() == node->outputs().size() &&
                           // Its schema leaves out that the result is the argument.
                           std::string_view(node->kind().toQualString()) != "prim::unchecked_cast";
  return is_declared ? schema : nullptr;
}

bool is_any(const c10::AliasInfo& info) {
  return info.isWildcardBefore() || info.isWildcardAfter();
}

bool names_same_set(const c10::AliasInfo& given, const c10::AliasInfo& returned) {
  return std::any_of(given.beforeSets().begin(), given.beforeSets().end(),
                     [&](const auto& set) { return returned.beforeSets().count(set) > 0; });
}

template <class Matches>
bool any_contained(const c10::AliasInfo& info, const Matches& matches) {
  const auto& inner = info.containedTypes();
  return std::any_of(inner.begin(), inner.end(), matches);
}

}  // namespace

std::vector<c10::TypePtr> leaves_of(const c10::TypePtr& type) {
  const auto tuple = type->cast<c10::TupleType>();
  if (!tuple) return {type};
  std::vector<c10::TypePtr> out;
  for (const auto& element : tuple->elements()) {
    const auto leaves = leaves_of(element);
    out.insert(out.end(), leaves.begin(), leaves.end());
  }
  return out;
}

bool has_memory(const c10::TypePtr& type) {
  switch (without_optional(type).kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::FunctionType:
      return false;
    default:
      return true;
  }
}

bool is_container(const c10::TypePtr& type) {
  const auto kind = without_optional(type).kind();
  return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType;
}

std::vector<c10::TypePtr> held_types(const c10::TypePtr& type) {
  std::vector<c10::TypePtr> out;
  if (!is_container(type)) return out;
  for (const auto& element : without_optional(type).containedTypes()) {
    if (has_memory(element)) out.push_back(element);
  }
  return out;
}

Sharing sharing_of(const Node* node, size_t output, size_t input) {
  const auto* schema = declared_results(node);
  if (schema == nullptr) return Sharing::kAnything;
  const auto* returned = schema->returns()[output].alias_info();
  if (returned == nullptr) {
    return held_types(node->output(output)->type()).empty() ? Sharing::kNothing : Sharing::kContents;
  }
  if (is_any(*returned)) return Sharing::kAnything;
  if (any_contained(*returned, is_any)) return Sharing::kContents;
  const auto* given = input < schema->arguments().size() ? schema->arguments()[input].alias_info() : nullptr;
  if (given == nullptr) return Sharing::kNothing;
  if (names_same_set(*given, *returned)) return Sharing::kAnything;
  return any_contained(*returned, [&](const auto& type) { return names_same_set(*given, type); }) ? Sharing::kContents
                                                                                                  : Sharing::kNothing;
}

Writing writing_of(const Node* node, size_t input) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || input >= schema->arguments().size()) return Writing::kNothing;
  const auto& argument = schema->arguments()[input];
  const auto* info = argument.alias_info();
  // Batch norm's schema does not declare that it updates its running statistics.
  const bool writes = (info != nullptr && info->isWrite()) || argument.name().rfind("running_", 0) == 0;
  if (!writes) return Writing::kNothing;
  const bool is_list = is_container(node->input(input)->type());
  const bool writes_elements = info == nullptr || any_contained(*info, [](const auto& type) { return type.isWrite(); });
  return is_list && !writes_elements ? Writing::kContainer : Writing::kElements;
}

}  // namespace dslaunch::runtime::model::graph
