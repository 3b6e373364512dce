// The columns of sizes and elements against what the operators do.
#include <ATen/ExpandUtils.h>

#include <catch2/catch.hpp>

#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

// Kernels compute the elements before and after a boundary of vectors by different approximations.
bool nearly_same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::allclose(a, b, 1e-6, 1e-7, true);
}

// Dims in another order, and a part of one of them.
at::Tensor rearranged(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.permute({2, 0, 1}).slice(0, 1, 4) : tensor;
}

at::Tensor result_of(const SampleCall& call, const SampleInputs& inputs) {
  return call.run(inputs).results.at(0).toTensor();
}

at::Tensor sorted(const at::Tensor& tensor) {
  return std::get<0>(tensor.reshape({-1}).sort());
}

}  // namespace

TEST_CASE("operators: elementwise ones take elements in any order, in part, and broadcast") {
  for_every([](const OperatorTraits& row) { return row.elementwise; },
            [](const std::string&, const SampleCall& call) {
              const auto inputs = random_inputs(1);
              SampleInputs moved = inputs, narrow = inputs, wide = inputs;
              for (auto& [name, tensor] : moved) tensor = rearranged(tensor);
              CHECK(nearly_same(result_of(call, moved), rearranged(result_of(call, inputs))));
              for (const auto& name : call.operand_names()) {
                if (name.empty() || name == call.operand_names().front()) continue;
                narrow[name] = inputs.at(name).slice(1, 0, 1);
                wide[name] = narrow[name].expand_as(inputs.at(name));
              }
              CHECK(nearly_same(result_of(call, narrow), result_of(call, wide)));
            });
}

TEST_CASE("operators: results have the sizes that the rule says") {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const auto inputs = random_inputs(seed);
    for_every([](const OperatorTraits& row) { return row.size != SizeRule::kUnknown; },
              [&](const std::string& name, const SampleCall& call) {
                const auto values = call.run(inputs);
                const auto first = values.operands.at(0).toTensor().sizes().vec();
                auto expected = first;
                if (traits(std::string_view(name)).size == SizeRule::kTableRows) {
                  expected = values.operands.at(1).toTensor().sizes().vec();
                  expected.push_back(first.back());
                } else if (traits(std::string_view(name)).size == SizeRule::kLinear) {
                  expected.back() = values.operands.at(1).toTensor().size(0);
                }
                CHECK(values.results.at(0).toTensor().sizes() == expected);
              });
  }
}

TEST_CASE("operators: elements that stay are those of the first operand") {
  for_every([](const OperatorTraits& row) { return row.elements != Elements::kComputed; },
            [](const std::string& name, const SampleCall& call) {
              const auto values = call.run(with_floats_of(random_inputs(2), at::kFloat));
              const at::Tensor from = values.operands.at(0).toTensor(), to = values.results.at(0).toTensor();
              CHECK(same(sorted(to), sorted(from)));
              if (traits(std::string_view(name)).elements == Elements::kKept) CHECK(same(to, from));
            });
}

TEST_CASE("operators: those that keep classes keep the last dim") {
  for_every([](const OperatorTraits& row) { return row.keeps_classes; },
            [](const std::string& name, const SampleCall& call) {
              if (name == "aten::slice") return;  // of positions, it is assumed
              const auto values = call.run(random_inputs(3));
              CHECK(values.results.at(0).toTensor().size(-1) == values.operands.at(0).toTensor().size(-1));
            });
}

TEST_CASE("operators: only the first operand gives elements to those that only take sizes of others") {
  for_every([](const OperatorTraits& row) { return row.only_first_has_elements; },
            [](const std::string&, const SampleCall& call) {
              const auto inputs = random_inputs(4);
              SampleInputs others = inputs;
              others["y"] = at::randn_like(inputs.at("y"));
              CHECK(same(result_of(call, inputs), result_of(call, others)));
            });
}
