// The column of lowering: a fused group of the operator alone computes what LibTorch computes. And where GEMMs have
// their inputs.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <unordered_map>

#include "runtime/model/fusion/executor.hpp"
#include "runtime/model/fusion/lowering.hpp"
#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::operators;

namespace {

c10::IValue without_data(const c10::IValue& value) {
  return value.isTensor() ? c10::IValue(value.toTensor().to(at::kMeta)) : value;
}

// The operator as a region of its own over the rows of its result, run by the reference; nothing: it does not fit.
std::optional<at::Tensor> run_lowered(const SampleCall& call, const SampleInputs& inputs) {
  std::unordered_map<const torch::jit::Value*, c10::IValue> values;
  const auto given = call.arguments(inputs);
  for (size_t i = 0; i < given.size(); ++i) values[call.graph()->inputs()[i]] = given[i];
  const auto ran = call.run(inputs);
  for (size_t i = 0; i < ran.operands.size(); ++i) values[call.node()->input(i)] = ran.operands[i];
  const at::Tensor result = ran.results.at(0).toTensor();
  auto known_values = values;
  for (auto& [value, held] : known_values) held = without_data(held);
  known_values[call.node()->output()] = without_data(result);

  const auto num_leading_dims = static_cast<size_t>(result.dim() - 1);
  fusion::Region region{.num_leading_dims = num_leading_dims};
  fusion::Builder build(region);
  std::vector<at::Tensor> tensors;
  const fusion::KnownValues known{
      [&](const torch::jit::Value* value) -> const c10::IValue& { return known_values.at(value); },
      [&](const torch::jit::Value* value) {
        tensors.push_back(values.at(value).toTensor());
        const at::Tensor& tensor = tensors.back();
        const std::vector<bool> varies(num_leading_dims, tensor.dim() > 1);
        return build.input({tensor.scalar_type(), tensor.dim() == 0 ? 1 : tensor.size(-1), varies});
      }};
  if (!fusion::fits(call.node(), known)) return std::nullopt;
  const auto made = fusion::lower(call.node(), known, build);
  if (!made) return std::nullopt;
  region.outputs.push_back({*made, result.scalar_type()});
  return fusion::run_reference(region, tensors, result.sizes().slice(0, result.dim() - 1)).at(0);
}

}  // namespace

TEST_CASE("operators: a fused group of one operator computes the operator") {
  std::set<Lowering> seen;
  for_every([](const OperatorTraits& row) { return row.lowering != Lowering::kNone; },
            [&](const std::string& name, const SampleCall& call) {
              seen.insert(traits(std::string_view(name)).lowering);
              CHECK(fusion::is_fusible(call.node()));
              for (const auto dtype : {at::kFloat, at::kBFloat16}) {
                const auto inputs = with_floats_of(random_inputs(1), dtype);
                const auto found = run_lowered(call, inputs);
                REQUIRE(found);
                const auto expected = call.run(inputs).results.at(0).toTensor();
                CHECK(found->scalar_type() == expected.scalar_type());
                REQUIRE(found->sizes() == expected.sizes());
                const double tolerance = dtype == at::kFloat ? 1e-5 : 0.03;  // bf16 rounds to 1 / 256
                CHECK(at::allclose(found->to(at::kFloat), expected.to(at::kFloat), tolerance, tolerance));
              }
            });
  CHECK(seen.size() == static_cast<size_t>(Lowering::kDropout));  // the last; kNone is not among them
}

TEST_CASE("operators: what a row does not lower, or what writes in place, joins no fused group") {
  for_every([](const OperatorTraits& row) { return row.lowering == Lowering::kNone; },
            [](const std::string&, const SampleCall& call) { CHECK(!fusion::is_fusible(call.node())); });
}

TEST_CASE("operators: GEMMs are the factor times the weight, plus the bias") {
  for_every([](const OperatorTraits& row) { return row.gemm.factor >= 0; },
            [](const std::string& name, const SampleCall& call) {
              const auto where = traits(std::string_view(name)).gemm;
              const auto values = call.run(random_inputs(2));
              const auto operand = [&](int i) { return values.operands.at(static_cast<size_t>(i)).toTensor(); };
              at::Tensor weight = operand(where.weight);
              if (traits(std::string_view(name)).size == SizeRule::kLinear) weight = weight.t();
              at::Tensor expected = at::matmul(operand(where.factor), weight);
              if (where.bias >= 0) expected = expected + operand(where.bias);
              CHECK(at::allclose(values.results.at(0).toTensor(), expected, 1e-5, 1e-5));
            });
}
