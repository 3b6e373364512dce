// Follows a value through the operators that leave its type as it is, up to those that decide what type it needs.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include "runtime/model/dtypes/dtype_operators.hpp"

namespace dslaunch::runtime::model::dtypes {

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
