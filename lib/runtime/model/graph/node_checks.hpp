// Small questions to nodes and values of a TorchScript graph, for passes that recognize what a model computes. Pure.
#pragma once
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::model::graph {

inline bool is(const torch::jit::Node* node, std::string_view kind) {
  return node->kind().toQualString() == kind;
}

// An integer constant.
inline std::optional<int64_t> number(const torch::jit::Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
}

inline std::optional<bool> flag(const torch::jit::Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isBool() ? std::optional(constant->toBool()) : std::nullopt;
}

inline bool is_none(const torch::jit::Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isNone();
}

// Of a list that a node puts together; empty for others.
inline std::vector<torch::jit::Value*> elements(torch::jit::Value* list) {
  torch::jit::Node* node = list->node();
  if (node->kind() != c10::prim::ListConstruct) return {};
  return {node->inputs().begin(), node->inputs().end()};
}

}  // namespace dslaunch::runtime::model::graph
