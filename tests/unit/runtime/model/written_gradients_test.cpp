// Weight gradients that a backward writes where they are summed: that they are PyTorch's, and when they are passed on
// instead.
#include "runtime/state/gradient_destination.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/model/layers/linear.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::units;
using namespace dslaunch::runtime::model::layers;

namespace {

using Parameters = std::vector<at::Tensor>;
using Forward = std::function<at::Tensor(const at::Tensor& input, const Parameters&)>;

// Offers a sum for the gradient of the first parameter.
struct Owner : UnitParameters {
  explicit Owner(const at::Tensor& like) : sum(at::full_like(like, 7)) {}
  UnitValues acquire(int, UnitCall) override { return {}; }
  void release(int) override {}
  void prepare_backward(int) override {}
  std::optional<GradientDestination> gradient_destination(int unit, size_t parameter, at::ScalarType factors) override {
    CHECK(unit == 3);
    CHECK(factors == sum.scalar_type());
    if (parameter != 0) return std::nullopt;
    num_asked += 1;
    return GradientDestination{sum, std::exchange(is_empty, false)};
  }
  void take_gradients(int, std::vector<at::Tensor> of_call) override { taken.push_back(std::move(of_call)); }
  DeferredGradients* deferred_gradients() override { return defers ? &deferred : nullptr; }

  at::Tensor sum;  // of garbage at first
  bool is_empty = true, defers = false;
  int num_asked = 0;
  DeferredGradients deferred;
  std::vector<std::vector<at::Tensor>> taken;
};

Parameters gathered(Owner& owner, const Parameters& values) {
  Parameters views;
  for (const auto& value : values) views.push_back(value.variable_data());
  attach_gather_node(views, std::make_shared<CallInBackward>(CallInBackward{.parameters = &owner, .unit = 3}));
  return views;
}

// A layer, ours and PyTorch's, and the shapes of its weight and bias for an input of 4 features.
struct Layer {
  const char* name;
  Forward ours, pytorch;
  std::vector<int64_t> weight;
  bool has_bias, takes_rows;  // takes_rows: only of two dims
};

std::optional<at::Tensor> bias_of(const Parameters& p) {
  return p.size() > 1 ? std::optional(p[1]) : std::nullopt;
}

std::vector<Layer> layers(GemmOptions options) {
  return {
      {"linear",
       [=](const auto& x, const auto& p) { return fused_linear(x, p[0], {}, options); },
       [](const auto& x, const auto& p) { return at::linear(x, p[0]); },
       {5, 4},
       false,
       false},
      {"linear with bias",
       [=](const auto& x, const auto& p) { return fused_linear(x, p[0], bias_of(p), options); },
       [](const auto& x, const auto& p) { return at::linear(x, p[0], bias_of(p)); },
       {5, 4},
       true,
       false},
      {"linear, transposed",
       [=](const auto& x, const auto& p) { return fused_linear(x, p[0].t(), p[1], options); },
       [](const auto& x, const auto& p) { return at::linear(x, p[0].t(), p[1]); },
       {4, 5},
       true,
       false},
      {"matmul",
       [=](const auto& x, const auto& p) { return fused_matmul(x, p[0], options); },
       [](const auto& x, const auto& p) { return at::matmul(x, p[0]); },
       {4, 5},
       false,
       false},
      {"matmul, transposed",
       [=](const auto& x, const auto& p) { return fused_matmul(x, p[0].mT(), options); },
       [](const auto& x, const auto& p) { return at::matmul(x, p[0].mT()); },
       {5, 4},
       false,
       false},
      {"addmm",
       [=](const auto& x, const auto& p) { return fused_addmm(p[1], x, p[0], 1, 1, options); },
       [](const auto& x, const auto& p) { return at::addmm(p[1], x, p[0]); },
       {4, 5},
       true,
       true},
      {"addmm, transposed",
       [=](const auto& x, const auto& p) { return fused_addmm(p[1], x, p[0].t(), 1, 1, options); },
       [](const auto& x, const auto& p) { return at::addmm(p[1], x, p[0].t()); },
       {5, 4},
       true,
       true},
  };
}

// Inputs of 4 features, of awkward shapes.
std::vector<at::Tensor> inputs(at::ScalarType dtype) {
  return {at::randn({6, 4}).to(dtype),
          at::randn({1, 4}).to(dtype),
          at::randn({4, 6}).to(dtype).t(),
          at::randn({2, 3, 4}).to(dtype),
          at::randn({2, 1, 3, 4}).to(dtype),
          at::randn({3, 4, 2}).to(dtype).transpose(1, 2),
          at::randn({6, 9}).to(dtype).narrow(1, 3, 4)};
}

at::Tensor leaf(const at::Tensor& values, bool requires_grad = true) {
  return values.detach().set_requires_grad(requires_grad);
}

struct Reference {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // of the input, which may be undefined, then of the parameters
};

Reference reference(const Forward& forward, const at::Tensor& input, const Parameters& values, bool of_input) {
  std::vector<at::Tensor> leaves{leaf(input, of_input)};
  for (const auto& value : values) leaves.push_back(leaf(value));
  const at::Tensor out = forward(leaves[0], {leaves.begin() + 1, leaves.end()});
  const at::Tensor upstream = at::cos(out.detach());
  torch::autograd::backward({out}, {upstream});
  Reference found{out.detach(), {}};
  for (const auto& tensor : leaves) found.gradients.push_back(tensor.grad());
  return found;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.scalar_type() == b.scalar_type() && at::equal(a, b)));
}

}  // namespace

TEST_CASE("weight gradients are written where they are summed, bit for bit PyTorch's", "[runtime][model][written]") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const bool of_input = GENERATE(true, false), writes = GENERATE(true, false);
  torch::manual_seed(3);
  for (const auto& layer : layers({.writes_gradient = writes})) {
    Parameters values{at::randn(layer.weight).to(dtype)};
    if (layer.has_bias) values.push_back(at::randn({5}).to(dtype));
    for (const auto& input : inputs(dtype)) {
      if (layer.takes_rows && input.dim() != 2) continue;
      INFO(layer.name << " of an input of " << input.sizes() << " with strides " << input.strides() << " in "
                      << at::toString(dtype));
      const auto expected = reference(layer.pytorch, input, values, of_input);
      Owner owner(values[0]);
      const at::Tensor x = leaf(input, of_input), out = layer.ours(x, gathered(owner, values));
      torch::autograd::backward({out}, {at::cos(out.detach())});
      CHECK(same(out.detach(), expected.output));
      CHECK(same(x.grad(), expected.gradients[0]));
      REQUIRE(owner.taken.size() == 1);
      CHECK(owner.num_asked == (writes ? 1 : 0));
      CHECK(owner.taken[0][0].defined() == !writes);
      CHECK(same(writes ? owner.sum : owner.taken[0][0], expected.gradients[1]));
      if (layer.has_bias) CHECK(same(owner.taken[0][1], expected.gradients[2]));
    }
  }
}

TEST_CASE("a sum that has something already gets the gradient added", "[runtime][model][written]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  torch::manual_seed(4);
  const at::Tensor input = at::randn({6, 4}).to(dtype), weight = at::randn({5, 4}).to(dtype);
  Owner owner(weight);
  owner.is_empty = false;
  const at::Tensor before = at::randn({5, 4}).to(dtype);
  owner.sum.copy_(before);
  const auto out = fused_linear(leaf(input), gathered(owner, {weight})[0], {});
  torch::autograd::backward({out}, {at::cos(out.detach())});
  const auto expected =
      reference([](const auto& x, const auto& p) { return at::linear(x, p[0]); }, input, {weight}, true);
  CHECK(same(owner.sum, before + expected.gradients[1]));
}

TEST_CASE("a weight that several operators use is the sum of what is written and what is passed on",
          "[runtime][model][written]") {
  torch::manual_seed(5);
  const at::Tensor input = at::randn({3, 4}), weight = at::randn({4, 4});
  const auto repeated = [](const auto& multiply) {
    return [multiply](const at::Tensor& x, const Parameters& p) {
      return multiply(at::tanh(multiply(at::tanh(multiply(x, p[0])), p[0].t())), p[0]) + p[0].sum();
    };
  };
  const auto expected =
      reference(repeated([](const auto& x, const auto& w) { return at::matmul(x, w); }), input, {weight}, true);
  Owner owner(weight);
  const at::Tensor x = leaf(input);
  const auto out =
      repeated([](const auto& in, const auto& w) { return fused_matmul(in, w); })(x, gathered(owner, {weight}));
  torch::autograd::backward({out}, {at::cos(out.detach())});
  CHECK(owner.num_asked == 3);
  REQUIRE(owner.taken.size() == 1);
  CHECK(at::allclose(owner.sum + owner.taken[0][0], expected.gradients[1], 1e-6, 1e-6));
  CHECK(same(x.grad(), expected.gradients[0]));
}

TEST_CASE("GEMMs without a weight gradient of a unit are PyTorch's", "[runtime][model][written]") {
  torch::manual_seed(6);
  const at::Tensor weight = at::randn({5, 4});
  Owner owner(weight);
  SECTION("an empty batch") {
    const at::Tensor x = leaf(at::empty({0, 3, 4}));
    const auto out = fused_linear(x, gathered(owner, {weight})[0], {});
    CHECK(out.sizes() == at::IntArrayRef({0, 3, 5}));
    out.sum().backward();
    REQUIRE(owner.taken.size() == 1);
    CHECK(same(owner.taken[0][0], at::zeros({5, 4})));
  }
  SECTION("a frozen weight") {
    const at::Tensor x = leaf(at::randn({3, 4}));
    const auto out = fused_linear(x, weight, {});
    CHECK(std::string(out.grad_fn()->name()).find("Gemm") == std::string::npos);
    out.sum().backward();
    CHECK(same(x.grad(), weight.sum(0).expand({3, 4})));
  }
  SECTION("a vector") {
    const auto out = fused_matmul(leaf(at::randn({4})), gathered(owner, {weight})[0].t());
    out.sum().backward();
    REQUIRE(owner.taken.size() == 1);
    CHECK(owner.taken[0][0].defined());
  }
  SECTION("an input of another type") {
    CHECK_THROWS(fused_linear(leaf(at::randn({3, 4}).to(at::kDouble)), gathered(owner, {weight})[0], {}));
  }
  CHECK(owner.num_asked == 0);
}

TEST_CASE("a weight gradient that another caller asks for is passed on", "[runtime][model][written]") {
  torch::manual_seed(7);
  const at::Tensor input = at::randn({3, 4}), weight = at::randn({5, 4});
  const auto linear = [](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); };
  Owner owner(weight);
  owner.sum.zero_();
  owner.is_empty = false;
  const auto views = gathered(owner, {weight});
  const at::Tensor x = leaf(input), other_x = leaf(input), other_weight = leaf(weight);
  const at::Tensor out = fused_linear(x, views[0], {}), expected = linear(other_x, other_weight);
  SECTION("the model, in its forward") {
    const auto found = torch::autograd::grad({out.square().sum()}, {views[0]}, {}, /*retain_graph=*/true);
    CHECK(same(found[0], torch::autograd::grad({expected.square().sum()}, {other_weight})[0]));
    CHECK(owner.taken.empty());
  }
  SECTION("the model, which differentiates it again") {
    const auto penalty = [](const at::Tensor& output, const at::Tensor& parameter) {
      return torch::autograd::grad({output.square().sum()}, {parameter}, {}, true, /*create_graph=*/true)[0]
          .square()
          .sum();
    };
    penalty(out, views[0]).backward();  // all of the graph, so parts may be written
    penalty(expected, other_weight).backward();
    CHECK(at::allclose(x.grad(), other_x.grad()));
    REQUIRE(owner.taken.size() == 1);
    const at::Tensor passed_on = owner.taken[0][0];
    CHECK(at::allclose(passed_on.defined() ? owner.sum + passed_on : owner.sum, other_weight.grad()));
    return;
  }
  SECTION("a hook") {
    at::Tensor seen;
    views[0].register_hook([&](const at::Tensor& gradient) { seen = gradient; });
    out.square().sum().backward();
    expected.square().sum().backward();
    CHECK(same(seen, other_weight.grad()));
    REQUIRE(owner.taken.size() == 1);
    CHECK(same(owner.taken[0][0], other_weight.grad()));
  }
  SECTION("a backward that is repeated") {
    out.square().sum().backward({}, /*retain_graph=*/true);
    expected.square().sum().backward();
    REQUIRE(owner.taken.size() == 1);
    CHECK(same(owner.taken[0][0], other_weight.grad()));
  }
  CHECK(owner.num_asked == 0);
}

TEST_CASE("a deferred weight gradient is written when its work runs", "[runtime][model][written]") {
  torch::manual_seed(8);
  const bool writes = GENERATE(true, false);
  const at::Tensor input = at::randn({3, 4}), weight = at::randn({4, 4});
  const Forward pytorch = [](const auto& x, const auto& p) { return at::linear(at::linear(x, p[0]), p[0]); };
  const auto expected = reference(pytorch, input, {weight}, true);
  Owner owner(weight);
  owner.defers = true;
  const auto views = gathered(owner, {weight});
  const GemmOptions options{.writes_gradient = writes};
  const auto out = fused_linear(fused_linear(leaf(input), views[0], {}, options), views[0], {}, options);
  owner.deferred.open();
  torch::autograd::backward({out}, {at::cos(out.detach())});
  const auto work = owner.deferred.close();
  CHECK(owner.num_asked == 0);
  CHECK(owner.taken.empty());
  REQUIRE(work.size() == 1);
  work[0]();
  CHECK(owner.num_asked == (writes ? 2 : 0));
  REQUIRE(owner.taken.size() == 1);
  CHECK(owner.taken[0][0].defined() == !writes);
  CHECK(at::allclose(writes ? owner.sum : owner.taken[0][0], expected.gradients[1], 1e-6, 1e-6));
}
