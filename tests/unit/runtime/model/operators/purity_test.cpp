// The columns of purity and of shared memory against a second run and against where the results lie.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

namespace {

SampleInputs copies(const SampleInputs& inputs) {
  SampleInputs out = inputs;
  for (auto& [name, tensor] : out) tensor = tensor.clone();
  return out;
}

void check_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

// Whether a tensor lies in the memory of one of the others.
bool shares_memory(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  return std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) { return tensor.is_alias_of(other); });
}

}  // namespace

TEST_CASE("operators: pure ones return the same twice and change nothing") {
  for_every([](const OperatorTraits& row) { return row.purity != Purity::kUnknown; },
            [](const std::string&, const SampleCall& call) {
              const auto inputs = random_inputs(1), before = copies(inputs);
              at::manual_seed(1);
              const auto first = call.run(inputs);
              at::manual_seed(2);
              const auto second = call.run(inputs);
              for (const auto& [name, tensor] : inputs) CHECK(at::equal(tensor, before.at(name)));
              check_equal(tensors_in(first.results), tensors_in(second.results));
              REQUIRE(first.results.size() == second.results.size());
              for (size_t i = 0; i < first.results.size(); ++i) {
                const auto& one = first.results[i];
                if (one.isScalar()) CHECK(one == second.results[i]);
              }
              CHECK(!call.node()->isNondeterministic());
            });
}

TEST_CASE("operators: what free ones return lies in memory of an operand, or is a number") {
  for_every([](const OperatorTraits& row) { return row.purity == Purity::kFree; },
            [](const std::string&, const SampleCall& call) {
              const auto values = call.run(random_inputs(2));
              const auto operands = tensors_in(values.operands);
              for (const auto& result : tensors_in(values.results)) CHECK(shares_memory(result, operands));
            });
}

TEST_CASE("operators: a new tensor is new for arguments that change nothing, too") {
  for_every([](const OperatorTraits& row) { return row.makes_new_tensor; },
            [](const std::string&, const SampleCall& call) {
              for (const double neutral : {0.0, 1.0}) {
                SampleInputs inputs = random_inputs(3);
                for (auto& [name, tensor] : inputs) {
                  if (name != "x") tensor = at::full_like(tensor, neutral);
                }
                for (const char* name : {"x", "y", "p", "v"}) inputs[name] = inputs[name].slice(-1, 0, 1).contiguous();
                const auto values = call.run(inputs);
                for (const auto& result : tensors_in(values.results)) {
                  CHECK(!shares_memory(result, tensors_in(values.operands)));
                }
              }
            });
}

TEST_CASE("operators: gradients that are passed on arrive as they are") {
  for_every([](const OperatorTraits& row) { return row.gradient == Gradient::kPassed; },
            [](const std::string&, const SampleCall& call) {
              SampleInputs inputs = random_inputs(4);
              inputs["x"].requires_grad_();
              const at::Tensor result = call.run(inputs).results.at(0).toTensor(), upstream = at::randn_like(result);
              const auto gradients = torch::autograd::grad({result}, {inputs["x"]}, {upstream});
              CHECK(at::equal(gradients.at(0), upstream));
            });
}
