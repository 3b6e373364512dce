// Where the values of a flat graph come from and go to, as far as that does not depend on the types that the run
// chooses.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/model/dtypes/dtype_operators.hpp"

namespace dslaunch::runtime::model::dtypes {

// The operand at which `operand`'s value entered the outermost tuple that brought it there; without tuples itself.
Operand entry_of(Operand operand);

// All uses of a value. A tuple that holds it is one use; the uses of the tuple's element are not listed.
std::vector<Operand> uses_of(torch::jit::Value* value);
// The values in which the element of an operand appears after its node: the node's outputs, or for a tuple what is
// unpacked from it. `leaves`: set if it is also returned from the graph or from a block.
std::vector<torch::jit::Value*> values_after(const Operand& operand, bool& leaves);

class ValueOrigins {
 public:
  // `graph` and `model` must outlive this object; `graph` is the inlined forward of `model`.
  ValueOrigins(torch::jit::Graph& graph, const torch::jit::Module& model);

  // Whether a floating-point parameter contributed. Values without one are computed as the trace has them: positions,
  // rotary tables, masks.
  bool depends_on_parameter(const torch::jit::Value* value) const { return dependent_.count(value) > 0; }
  bool is_parameter(const torch::jit::Value* value) const { return parameters_.count(value) > 0; }
  // Known to have no floating-point elements.
  bool is_integer(const torch::jit::Value* value) const { return integers_.count(value) > 0; }
  // The names of the buffer that the value is, empty for other values.
  const std::vector<std::string>& buffer_names(const torch::jit::Value* value) const;
  // All nodes, in order of execution, those of inner blocks before their node.
  const std::vector<torch::jit::Node*>& nodes() const { return nodes_; }

 private:
  void bind_attributes(torch::jit::Graph& graph, const torch::jit::Module& model);
  bool follow(torch::jit::Node* node);
  bool mark(const torch::jit::Value* value, bool dependent, bool integer);
  bool mark_written(const torch::jit::Value* value);

  std::vector<torch::jit::Node*> nodes_;
  std::unordered_set<const torch::jit::Value*> parameters_, dependent_, integers_;
  std::unordered_map<const torch::jit::Value*, std::vector<std::string>> buffers_;
};

}  // namespace dslaunch::runtime::model::dtypes
