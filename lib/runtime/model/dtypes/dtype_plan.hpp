// Decides how a trace that was exported in fp32 runs in a half-precision type. A trace has lost which of its casts to
// fp32 are upcasts on purpose (norms, softmax, losses) and which cast back to the type of the model, because in fp32
// both are the same; and since a cast to a tensor's own type returns that tensor, later uses of a value refer to its
// cast. Here both are decided for every use of a cast, by the operators that the use leads to. Pure; any thread.
#pragma once
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/dtypes/dtype_operators.hpp"

namespace dslaunch::runtime::model::dtypes {

// Nodes of the flat graph.
struct DtypePlan {
  std::set<torch::jit::Node*> follow;  // casts and factories whose type becomes the run's
  std::set<Operand> before_cast;       // uses of a kept cast that take the run's type instead of fp32
  std::set<Operand> narrow;            // operands that are cast to the run's type where they are fp32
  // Operands that are cast to the type of another operand where both are floating-point.
  struct Match {
    Operand operand, like;
    bool operator<(const Match& other) const { return operand < other.operand; }
  };
  std::set<Match> match;
  std::set<std::string> fp32_buffers;  // those that only rotary tables, masks and their like are computed from
};

// `graph`: the inlined forward of `model`, without calls.
DtypePlan plan_dtypes(torch::jit::Graph& graph, const torch::jit::Module& model);

// Applies the plan to the graphs of traces. Scripted models are not changed: their casts name types or follow other
// values.
struct DtypeRewrite {
  std::set<std::string> fp32_buffers;  // names of buffers that stay fp32
  std::vector<std::string> notes;      // for the user
};

// Changes the graphs of `model`, before anything else changes them. `dtype`: in which the run computes; nothing happens
// unless that is a half-precision type and the model was exported in another.
DtypeRewrite follow_dtype(const torch::jit::Module& model, at::ScalarType dtype);

}  // namespace dslaunch::runtime::model::dtypes
