// The column of FLOPs. A GEMM of ones has in each element the number of multiply-accumulates that made it, so that
// the sum of the results is what a formula must say, whatever the operator.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <set>

#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

namespace {

OperatorCost cost_of(const std::string& name, const SampleCall::Values& values) {
  const auto cost = operator_cost(name, Arguments(values.operands.data(), values.operands.size()));
  REQUIRE(cost);
  return *cost;
}

int64_t total(const at::Tensor& tensor) {
  return tensor.sum().item<int64_t>();
}

int64_t gemm_of_ones(const at::Tensor& a, const at::Tensor& b) {
  return total(at::matmul(at::ones_like(a), at::ones_like(b)));
}

int64_t macs_of_attention(const SampleCall::Values& values) {
  const at::Tensor q = values.operands.at(0).toTensor(), k = values.operands.at(1).toTensor();
  const at::Tensor v = values.operands.at(2).toTensor(), scores = at::matmul(q, k.transpose(-1, -2));
  return gemm_of_ones(q, k.transpose(-1, -2)) + gemm_of_ones(scores, v);
}

// Each matrix with each element of the input of each step.
int64_t macs_of_recurrence(const SampleCall::Values& values) {
  const at::Tensor x = values.operands.at(0).toTensor();
  int64_t out = 0;
  for (const auto& operand : values.operands) {
    if (!operand.isTensorList()) continue;
    for (const at::Tensor& weight : operand.toTensorVector()) {
      if (weight.dim() == 2) out += gemm_of_ones(at::ones({x.size(0) * x.size(1), weight.size(1)}), weight.t());
    }
  }
  return out;
}

// Of ones, with biases of zeros.
SampleInputs ones(uint32_t seed) {
  SampleInputs out = random_inputs(seed);
  for (auto& [name, tensor] : out) {
    if (tensor.is_floating_point())
      tensor = name == "n" || name == "e" ? at::zeros_like(tensor) : at::ones_like(tensor);
  }
  return out;
}

}  // namespace

TEST_CASE("operators: FLOPs of GEMMs are those that the GEMMs take") {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for_every([](const OperatorTraits& row) { return row.flops != nullptr; },
              [&](const std::string& name, const SampleCall& call) {
                const auto values = call.run(ones(seed));
                const auto cost = cost_of(name, values);
                if (cost.macs == 0) return;
                int64_t expected = 0;
                if (name.find("attention") != std::string::npos) {
                  expected = macs_of_attention(values);
                } else if (traits(std::string_view(name)).flops == recurrent_cost) {
                  expected = macs_of_recurrence(values);
                } else {
                  for (const auto& result : tensors_in(values.results)) expected += total(result);
                }
                CHECK(cost.macs == expected);
                const bool adds = traits(std::string_view(name)).flops == addmm_cost;
                CHECK(cost.flops == 2 * expected + (adds ? values.operands.at(0).toTensor().numel() : 0));
              });
  }
}

TEST_CASE("operators: every GEMM with a formula is counted") {
  for_every([](const OperatorTraits& row) { return row.type == TypeRole::kGemm && row.flops != nullptr; },
            [](const std::string& name, const SampleCall& call) {
              if (name != "aten::prelu") CHECK(cost_of(name, call.run(ones(1))).macs > 0);
            });
}

TEST_CASE("operators: FLOPs of other operators are a small number for each element") {
  for_every([](const OperatorTraits& row) { return row.flops != nullptr; },
            [](const std::string& name, const SampleCall& call) {
              const auto values = call.run(random_inputs(4));
              const auto cost = cost_of(name, values);
              if (cost.macs > 0) return;
              const bool resizes = traits(std::string_view(name)).flops == upsample_cost;
              const at::Tensor counted = (resizes ? values.results : values.operands).at(0).toTensor();
              CHECK(cost.flops % counted.numel() == 0);
              CHECK((cost.flops >= counted.numel() && cost.flops <= 5 * counted.numel()));
              const bool is_plain = resizes || traits(std::string_view(name)).flops == elementwise_cost;
              if (is_plain) CHECK(cost.flops == counted.numel());
            });
}
