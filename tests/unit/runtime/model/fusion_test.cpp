// Derivatives of regions against autograd over the reference, in fp64.
#include "runtime/model/fusion/autodiff.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "random_regions.hpp"
#include "runtime/model/fusion/executor.hpp"

using namespace dslaunch::runtime::model::fusion;
using dslaunch::test::random_region;
using dslaunch::test::tensors_for;

namespace {

constexpr auto kDouble = at::kDouble;
const std::vector<int64_t> kLeading{2, 3};
const std::vector<bool> kAll{true, true}, kNone{false, false};

using Tensors = std::vector<at::Tensor>;

// The gradients by derive_backward, each summed to its input's sizes.
Tensors derived(const Region& region, const Tensors& inputs, const Tensors& outputs, const Tensors& upstream,
                const std::vector<bool>& wanted, const std::vector<bool>& given, const std::vector<int64_t>& leading) {
  const auto backward = derive_backward(region, wanted, given);
  Tensors sources;
  for (const auto& source : backward.sources) {
    const auto& of = source.from == BackwardSource::From::kInput    ? inputs
                     : source.from == BackwardSource::From::kOutput ? outputs
                                                                    : upstream;
    sources.push_back(of[source.index].detach());
  }
  const auto found = run_reference(backward.region, sources, leading);
  Tensors out(inputs.size());
  for (const auto& [input, output] : backward.gradients) {
    out[input] = found[output].dim() == 1 ? found[output].reshape(inputs[input].sizes())
                                          : at::sum_to(found[output], inputs[input].sizes().vec());
  }
  return out;
}

void check_against_autograd(const Region& region, const std::vector<int64_t>& leading) {
  INFO(to_text(region));
  auto inputs = tensors_for(region, leading);
  for (auto& input : inputs) input.requires_grad_();
  const auto outputs = run_reference(region, inputs, leading);
  Tensors upstream;
  for (const auto& output : outputs) upstream.push_back(at::randn_like(output.detach()));
  const auto expected = torch::autograd::grad(outputs, inputs, upstream, std::nullopt, false, /*allow_unused=*/true);
  const auto found = derived(region, inputs, outputs, upstream, std::vector<bool>(inputs.size(), true),
                             std::vector<bool>(outputs.size(), true), leading);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("gradient of input " << i);
    const at::Tensor wanted = expected[i].defined() ? expected[i] : at::zeros_like(inputs[i]);
    const at::Tensor got = found[i].defined() ? found[i] : at::zeros_like(inputs[i]);
    REQUIRE(got.sizes() == wanted.sizes());
    CHECK(at::allclose(got, wanted, 1e-9, 1e-10));
  }
}

Region rms_norm(int64_t width, at::ScalarType dtype) {
  Region region{.num_leading_dims = 2};
  Builder build(region);
  const Id x = build.input({dtype, width, kAll}), weight = build.input({dtype, width, kNone});
  const Id mean = build.row_mean(build.power(x, 2));
  const Id scaled =
      build.binary(Op::kMultiply, x, build.unary(Op::kRsqrt, build.binary(Op::kAdd, mean, build.constant(1e-5))));
  region.outputs.push_back({build.binary(Op::kMultiply, weight, build.cast(scaled, dtype)), dtype});
  return region;
}

}  // namespace

TEST_CASE("regions: derivatives of random regions are those of autograd") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    at::manual_seed(seed);
    check_against_autograd(random_region(seed, kLeading, 16, kDouble).region, kLeading);
  }
}

TEST_CASE("regions: the derivative of every operation is autograd's") {
  at::manual_seed(3);
  for (int op = static_cast<int>(Op::kNegate); op <= static_cast<int>(Op::kErf); ++op) {
    Region region{.num_leading_dims = 2};
    Builder build(region);
    const Id x = build.input({kDouble, 6, kAll});
    // log, sqrt and rsqrt of positive numbers
    const Id positive = build.binary(Op::kAdd, build.power(x, 2), build.constant(0.3));
    region.outputs.push_back({build.unary(static_cast<Op>(op), positive), kDouble});
    check_against_autograd(region, kLeading);
  }
  for (const double exponent : {-3.0, -1.0, -0.5, 0.5, 1.0, 1.7, 2.0, 3.0, 4.0}) {
    Region region{.num_leading_dims = 2};
    Builder build(region);
    const Id x = build.input({kDouble, 6, kAll});
    region.outputs.push_back({build.power(build.unary(Op::kExp, x), exponent), kDouble});
    check_against_autograd(region, kLeading);
  }
  for (const Op op : {Op::kAdd, Op::kSubtract, Op::kMultiply, Op::kDivide, Op::kMaximum, Op::kMinimum}) {
    for (const bool is_narrow : {false, true}) {
      Region region{.num_leading_dims = 2};
      Builder build(region);
      const Id x = build.input({kDouble, 6, kAll}), y = build.input({kDouble, is_narrow ? 1 : 6, {true, false}});
      region.outputs.push_back({build.binary(op, x, y), kDouble});
      check_against_autograd(region, kLeading);
    }
  }
}

TEST_CASE("regions: equal operands share the gradient of a maximum") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id x = build.input({kDouble, 4, {true}}), y = build.input({kDouble, 4, {true}});
  region.outputs.push_back({build.binary(Op::kMaximum, x, y), kDouble});
  region.outputs.push_back({build.row(Op::kRowMax, x), kDouble});
  const Tensors inputs{at::ones({2, 4}, kDouble).requires_grad_(), at::ones({2, 4}, kDouble).requires_grad_()};
  const auto outputs = run_reference(region, inputs, {2});
  const Tensors upstream{at::ones({2, 4}, kDouble), at::ones({2, 1}, kDouble)};
  const auto expected = torch::autograd::grad(outputs, inputs, upstream);
  const auto found = derived(region, inputs, outputs, upstream, {true, true}, {true, true}, {2});
  CHECK(at::equal(found[0], expected[0]));
  CHECK(at::equal(found[1], expected[1]));
}

TEST_CASE("regions: backward reads an output rather than all that it came from") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id a = build.input({at::kBFloat16, 8, {true}}), b = build.input({at::kBFloat16, 8, {true}});
  const Id sum = build.binary(Op::kAdd, a, b);
  const Id square = build.row_mean(build.power(sum, 2));
  region.outputs.push_back({sum, at::kBFloat16});
  region.outputs.push_back({build.binary(Op::kMultiply, sum, build.unary(Op::kRsqrt, square)), at::kBFloat16});
  const auto backward = derive_backward(region, {true, true}, {true, true});
  using From = BackwardSource::From;
  const auto reads = [&](From from) {
    return std::count_if(backward.sources.begin(), backward.sources.end(),
                         [&](const auto& one) { return one.from == from; });
  };
  CHECK(reads(From::kInput) == 0);
  CHECK(reads(From::kOutput) == 1);
  CHECK(reads(From::kGradient) == 2);
  CHECK(backward.region.outputs.size() == 1);  // both gradients are the same
  CHECK(backward.gradients.size() == 2);
}

namespace {

// What an output was computed as again, from kept tensors and rows; empty: it is not.
std::optional<at::Tensor> recomputed(const Region& region, size_t output, const Tensors& inputs, const Tensors& outputs,
                                     const std::vector<int64_t>& leading) {
  std::vector<BackwardSource> kept;
  const auto backward =
      derive_backward(region, std::vector<bool>(inputs.size(), true), std::vector<bool>(outputs.size(), true));
  for (const auto& source : backward.sources) {
    if (source.from != BackwardSource::From::kGradient) kept.push_back(source);
  }
  const auto again = derive_recomputation(region, output, kept, std::vector<bool>(inputs.size(), true));
  if (!again) return std::nullopt;
  Tensors sources;
  for (const auto& source : again->sources) {
    const bool is_input = source.from == BackwardSource::From::kInput;
    CHECK(source.from != BackwardSource::From::kGradient);
    const auto& varies = is_input ? region.inputs[source.index].varies : std::vector<bool>{true};
    const bool is_row = std::find(varies.begin(), varies.end(), true) == varies.end();
    CHECK((is_row || std::find(kept.begin(), kept.end(), source) != kept.end()));
    sources.push_back((is_input ? inputs : outputs)[source.index]);
  }
  return run_reference(again->region, sources, leading).at(0);
}

}  // namespace

TEST_CASE("regions: outputs are computed again from what backward keeps") {
  int count = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto made = random_region(seed, kLeading, 8, kDouble);
    INFO(to_text(made.region));
    const auto inputs = tensors_for(made.region, made.leading);
    const auto outputs = run_reference(made.region, inputs, made.leading);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto again = recomputed(made.region, i, inputs, outputs, made.leading);
      if (!again) continue;
      count += 1;
      CHECK(at::allclose(*again, outputs[i], 1e-12, 1e-12));
    }
  }
  CHECK(count > 50);
}

TEST_CASE("regions: an output is not computed again where that takes more than it saves") {
  const auto sum_of = [](int count, bool sigmoid) {
    Region region{.num_leading_dims = 1};
    Builder build(region);
    Id product = build.input({at::kBFloat16, 8, {true}});
    if (sigmoid) product = build.unary(Op::kSigmoid, product);
    for (int i = 1; i < count; ++i) {
      product = build.binary(Op::kMultiply, product, build.input({at::kBFloat16, 8, {true}}));
    }
    region.outputs.push_back({product, at::kBFloat16});
    const auto inputs = tensors_for(region, {3});
    return recomputed(region, 0, inputs, run_reference(region, inputs, {3}), {3}).has_value();
  };
  CHECK(sum_of(2, false));
  CHECK_FALSE(sum_of(3, false));  // reads three for one
  CHECK_FALSE(sum_of(1, true));   // is kept itself
  const auto norm = [](bool may_be_kept) {
    Region region = rms_norm(8, at::kBFloat16);
    Builder build(region);
    const Id bias = build.input({at::kBFloat16, 8, kNone});  // which no backward reads
    region.outputs[0].value = build.binary(Op::kAdd, region.outputs[0].value, bias);
    const auto kept = derive_backward(region, {true, true, true}, {true}).sources;
    return derive_recomputation(region, 0, kept, {false, false, may_be_kept}).has_value();
  };
  CHECK(norm(true));
  CHECK_FALSE(norm(false));
  Region sum{.num_leading_dims = 1};  // whose backward reads nothing
  Builder build(sum);
  const Id a = build.input({at::kBFloat16, 8, {true}}), b = build.input({at::kBFloat16, 8, {true}});
  sum.outputs.push_back({build.binary(Op::kAdd, a, b), at::kBFloat16});
  CHECK_FALSE(derive_recomputation(sum, 0, {}, {true, true}).has_value());
}

TEST_CASE("regions: gradients that are not wanted or not given cost nothing") {
  const auto region = rms_norm(8, kDouble);
  CHECK(derive_backward(region, {false, false}, {true}).region.nodes.empty());
  CHECK(derive_backward(region, {true, true}, {false}).region.outputs.empty());
  const auto only_input = derive_backward(region, {true, false}, {true});
  REQUIRE(only_input.gradients.size() == 1);
  CHECK(only_input.gradients[0].input == 0);
  const auto only_weight = derive_backward(region, {false, true}, {true});
  REQUIRE(only_weight.region.outputs.size() == 1);
  CHECK(only_weight.region.outputs[0].rows == Rows::kSum);
}

TEST_CASE("regions: a cast rounds, forward and backward") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id x = build.input({at::kFloat, 64, {true}});
  region.outputs.push_back({build.binary(Op::kMultiply, build.cast(x, at::kBFloat16), build.constant(3)), at::kFloat});
  const at::Tensor input = at::randn({4, 64});
  const auto outputs = run_reference(region, {input}, {4});
  CHECK(at::equal(outputs[0], input.to(at::kBFloat16).to(at::kFloat) * 3));

  Region back{.num_leading_dims = 1};
  Builder other(back);
  const Id half = other.input({at::kBFloat16, 64, {true}});
  back.outputs.push_back({other.unary(Op::kSin, half), at::kFloat});
  const auto backward = derive_backward(back, {true}, {true});
  CHECK(backward.region.outputs[0].dtype == at::kBFloat16);
}

TEST_CASE("regions: equal nodes are one, and unused ones go") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id x = build.input({at::kFloat, 4, {true}});
  const Id once = build.unary(Op::kExp, x);
  CHECK(build.unary(Op::kExp, x) == once);
  CHECK(build.unary(Op::kNegate, build.unary(Op::kNegate, x)) == x);
  CHECK(build.binary(Op::kMultiply, x, build.constant(1)) == x);
  CHECK(build.cast(x, at::kFloat) == x);
  build.unary(Op::kSin, x);
  region.outputs.push_back({once, at::kFloat});
  CHECK(without_unused(region).nodes.size() == 2);
}

TEST_CASE("regions: reductions have levels") {
  const auto region = rms_norm(8, at::kFloat);
  const auto levels = reduction_levels(region);
  CHECK(*std::max_element(levels.begin(), levels.end()) == 1);
}

TEST_CASE("regions: the gradient of a maximum that is an output in 16 bits") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id x = build.input({at::kHalf, 8, {true}});
  region.outputs.push_back({build.row(Op::kRowMax, build.unary(Op::kTanh, x)), at::kHalf});
  at::manual_seed(1);
  const Tensors inputs{at::randn({16, 8}).to(at::kHalf)};
  const auto outputs = run_reference(region, inputs, {16});
  const auto found = derived(region, inputs, outputs, {at::ones({16, 1}, at::kHalf)}, {true}, {true}, {16});
  const at::Tensor exact = inputs[0].to(at::kDouble).requires_grad_();
  const auto expected = torch::autograd::grad({exact.tanh().amax(-1).sum()}, {exact});
  CHECK(at::allclose(found[0].to(at::kDouble), expected[0], 1e-2, 1e-3));
}
