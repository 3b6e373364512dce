// A graph of a model as a function of all that it computes with: its arguments, the tensors of its modules and the
// results of the units that it calls are inputs, what it passes to those units is output. It draws no random numbers.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// An attribute of a module that is a tensor.
struct TensorAttribute {
  SlotKey slot;
  std::string path;  // below the module whose forward the graph is
  at::Tensor value;
};

struct ProbedGraph {
  // Inputs: self, the arguments, `attributes`, then the results of the `num_calls` calls of units in their order.
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<TensorAttribute> attributes;
  size_t num_arguments = 0, num_calls = 0;
  // Equal for graphs that compute the same of inputs of the same shapes; empty: `graph` reads more of self.
  std::string structure;

  // Outputs and the operands of calls. Changes the graph so that all its constants are on `device`.
  std::vector<c10::IValue> run(torch::jit::Stack inputs, at::Device device) const;
};

// Of a copy of a flat graph in which only calls of units are left; `module` is its first input. The failure says, as a
// clause, why the graph cannot be run so.
Result<ProbedGraph> to_probed_graph(const torch::jit::Graph& flat, const torch::jit::Module& module);

}  // namespace dslaunch::runtime::model::tensor_parallel
