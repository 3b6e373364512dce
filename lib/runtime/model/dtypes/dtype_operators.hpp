// What an operator does with the floating-point types of its operands, as far as fp32 exports need to know
// (docs/models.md, "Half precision"). Pure; any thread.
#pragma once
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::dtypes {

using operators::TypeRole;

// With the constants that the node takes.
TypeRole type_role(const torch::jit::Node* node);

// "linear" for aten::linear, "add" for aten::add_.
std::string_view operator_name(const torch::jit::Node* node);

// The input that is a number type, and its value if that is a constant.
struct TypeArgument {
  size_t input = 0;
  std::optional<at::ScalarType> value;
};
std::optional<TypeArgument> type_argument(const torch::jit::Node* node);

// The input named so in the operator's schema.
std::optional<size_t> input_named(const torch::jit::Node* node, std::string_view name);

// An input that carries elements: a tensor, or a tensor in a list that `node` takes. `user` is then the list's node.
struct Operand {
  torch::jit::Node* user = nullptr;
  size_t input = 0;
  torch::jit::Value* value() const { return user->input(input); }
  bool operator<(const Operand& other) const { return user != other.user ? user < other.user : input < other.input; }
  bool operator==(const Operand& other) const { return user == other.user && input == other.input; }
};
std::vector<Operand> operands_of(torch::jit::Node* node);

}  // namespace dslaunch::runtime::model::dtypes
