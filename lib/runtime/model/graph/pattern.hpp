// Patterns in a TorchScript graph: an operator with patterns for its operands. Matched from the operator whose result
// is wanted back to where its operands come from, within one block. And the replacement of a node that was found.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::model::graph {

struct OperandPattern;

struct Pattern {
  std::vector<std::string_view> operators;  // "aten::linear"; one of these; empty: any value matches
  std::vector<OperandPattern> operands;     // of the operator; others may be anything
  // Operators that may stand, in any number, between the operator and its user; the value passes through their first
  // operand.
  std::vector<std::string_view> through = {};
  std::optional<c10::IValue> constant = {};  // the value is this constant
};

struct OperandPattern {
  std::string_view argument;  // in the operator's schema: "dtype"
  Pattern pattern;
};

// The matched nodes, operands before their users; constants are not among them. Empty: the value does not match.
using Match = std::vector<torch::jit::Node*>;

Match match(torch::jit::Node* node, const Pattern& pattern);
// A value that the block computes.
Match match(const torch::jit::Value* value, const torch::jit::Block* block, const Pattern& pattern);

// A node with the same operands, then `more`, and one result takes the place of `node`, which is destroyed.
void replace_node(torch::jit::Node* node, const char* kind, at::ArrayRef<torch::jit::Value*> more = {});

}  // namespace dslaunch::runtime::model::graph
