// One call of every operator of the table, on random arguments: what the tests of the columns run. An operator whose
// arguments they cannot make is in kWithoutSample, with the reason.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::test {

// The operators that rows name, "aten::add"; without their variants in place.
std::vector<std::string> table_names();

// The arguments that the expressions of the samples use, by name.
using SampleInputs = std::map<std::string, at::Tensor>;
// Of random sizes; floating-point ones are normally distributed.
SampleInputs random_inputs(uint32_t seed);
SampleInputs with_floats_of(const SampleInputs& inputs, at::ScalarType dtype);

class SampleCall {
 public:
  explicit SampleCall(const std::string& name);

  struct Values {
    std::vector<c10::IValue> operands, results;  // of the operator's node
  };
  Values run(const SampleInputs& inputs) const;

  // Inputs that are operands, in order, those in a list one by one; empty for other operands.
  std::vector<std::string> operand_names() const;
  const torch::jit::Node* node() const { return node_; }
  // Of the sample's expression, which returns what the operator returns.
  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }
  std::vector<c10::IValue> arguments(const SampleInputs& inputs) const;

 private:
  std::shared_ptr<torch::jit::Graph> graph_;
  const torch::jit::Node* node_ = nullptr;
};

bool has_sample(std::string_view name);
std::vector<std::string> names_without_sample();

// Runs `check` for each operator with a sample whose row is chosen, with its name as Catch2's INFO.
void for_every(const std::function<bool(const runtime::model::operators::OperatorTraits&)>& is_chosen,
               const std::function<void(const std::string& name, const SampleCall& call)>& check);

// The tensors among values, also those in lists.
std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values);

}  // namespace dslaunch::test
