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

// What is known about the types of operands in the run.
class TypesInRun {
 public:
  virtual ~TypesInRun() = default;
  virtual bool is_fp32(const Operand& operand) const = 0;
  // Whether a parameter contributed to it.
  virtual bool depends(const Operand& operand) const = 0;
  // A cast to fp32 of such a value.
  virtual bool is_decided_cast(const torch::jit::Node* node) const = 0;
  // Whether it is one that stays, for some of its uses: an upcast.
  virtual bool is_kept_cast(const torch::jit::Node* node) const = 0;
};

// What a use of a cast leads to without another cast, a GEMM or a norm in between.
struct Reach {
  bool softmax = false;     // a softmax or a loss
  bool reduction = false;   // a norm, a root, a sum, before it is combined with a value in the run's type
  bool joins_fp32 = false;  // its elements are combined with a value that is fp32 already: the result is fp32 anyway
  bool meets_fp32 = false;  // what is computed from it is, before it is combined with a value in the run's type
  bool later_fp32 = false;  // or after that
  bool met_half = false;    // one that combines it with a value in the run's type
  bool arithmetic = false;  // any operator that computes
  bool upcast = false;      // a cast that is kept
  bool cast = false;        // another cast
  bool gemm = false, output = false;

  // Only casts back end it.
  bool is_cast_back() const { return cast && !upcast && !gemm && !output && !softmax && !reduction; }
  // `(x.float() * cos + rotated.float() * sin).to(x.dtype)`
  bool is_round_trip() const { return arithmetic && is_cast_back() && (!met_half || later_fp32); }
};
Reach reach_of(const Operand& use, const TypesInRun& types);

// Whether all values in a GEMM or norm that depend on parameters were cast to fp32 just before, and from the run's
// type: `linear(x.float(), weight.float())`.
bool is_on_purpose(torch::jit::Node* node, const TypesInRun& types);

// Where a value without a parameter's influence first meets such values.
struct Border {
  bool half = false, fp32 = false;  // their types
  bool arithmetic = false;          // something is computed from it before, or it is returned
  bool written = false;             // in place
};
Border border_of(torch::jit::Value* value, const TypesInRun& types);

}  // namespace dslaunch::runtime::model::dtypes
