// Weight gradients that a backward leaves for later: which, when they come, and that they are PyTorch's.
#include "runtime/state/deferred_gradients.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "runtime/model/layers/linear.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::units;
using namespace dslaunch::runtime::model::layers;

namespace {

struct Owner : UnitParameters {
  UnitValues acquire(int, UnitCall) override { return {}; }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor> of_unit) override { taken.push_back(std::move(of_unit)); }
  DeferredGradients* deferred_gradients() override { return &deferred; }

  DeferredGradients deferred;
  std::vector<std::vector<at::Tensor>> taken;
};

using Parameters = std::vector<at::Tensor>;
using Forward = std::function<at::Tensor(const at::Tensor& input, const Parameters&)>;

// Gradients of the input and of the parameters, PyTorch's own.
std::vector<at::Tensor> expected_gradients(const Forward& forward, const at::Tensor& input, const Parameters& values) {
  std::vector<at::Tensor> leaves{input.detach().clone().requires_grad_()};
  for (const auto& value : values) leaves.push_back(value.detach().clone().requires_grad_());
  const at::Tensor out = forward(leaves[0], {leaves.begin() + 1, leaves.end()});
  return torch::autograd::grad({out}, leaves, {at::cos(out.detach())}, {}, false, /*allow_unused=*/true);
}

struct Split {
  at::Tensor input_gradient;
  size_t num_taken_at_once = 0;
  std::vector<DeferredGradients::Work> work;
};

Split run_split(Owner& owner, const Forward& forward, const at::Tensor& input, const Parameters& values) {
  Parameters views;
  for (const auto& value : values) views.push_back(value.variable_data());
  attach_gather_node(views, std::make_shared<CallInBackward>(CallInBackward{.parameters = &owner, .unit = 3}));
  const at::Tensor leaf = input.detach().clone().requires_grad_();
  const at::Tensor out = forward(leaf, views);
  owner.deferred.open();
  torch::autograd::backward({out}, {at::cos(out.detach())});
  Split split{.work = owner.deferred.close()};
  split.input_gradient = leaf.grad();
  split.num_taken_at_once = owner.taken.size();
  return split;
}

void check_deferred(const Forward& ours, const Forward& pytorch, const at::Tensor& input, const Parameters& values) {
  const auto expected = expected_gradients(pytorch, input, values);
  Owner owner;
  auto split = run_split(owner, ours, input, values);
  CHECK(at::equal(split.input_gradient, expected[0]));
  CHECK(split.num_taken_at_once == 0);
  REQUIRE(split.work.size() == 1);
  const at::NoGradGuard no_grad;
  split.work[0]();
  REQUIRE(owner.taken.size() == 1);
  REQUIRE(owner.taken[0].size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(at::equal(owner.taken[0][i], expected[i + 1]));
}

// Whether the whole backward came at once, with the right gradients.
void check_at_once(const Forward& ours, const Forward& pytorch, const at::Tensor& input, const Parameters& values) {
  const auto expected = expected_gradients(pytorch, input, values);
  Owner owner;
  const auto split = run_split(owner, ours, input, values);
  CHECK(split.work.empty());
  REQUIRE(owner.taken.size() == 1);
  CHECK(at::equal(split.input_gradient, expected[0]));
  for (size_t i = 0; i < values.size(); ++i) CHECK(at::equal(owner.taken[0][i], expected[i + 1]));
}

at::Tensor linear(const at::Tensor& x, const Parameters& p) {
  return fused_linear(x, p[0], p.size() > 1 ? std::optional(p[1]) : std::nullopt);
}
at::Tensor pytorch_linear(const at::Tensor& x, const Parameters& p) {
  return at::linear(x, p[0], p.size() > 1 ? std::optional(p[1]) : std::nullopt);
}

}  // namespace

TEST_CASE("a linear layer's weight gradient is computed after the backward, bit for bit PyTorch's",
          "[runtime][model][deferred]") {
  const bool has_bias = GENERATE(false, true);
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  torch::manual_seed(3);
  Parameters values{at::randn({5, 4}).to(dtype)};
  if (has_bias) values.push_back(at::randn({5}).to(dtype));
  check_deferred(linear, pytorch_linear, at::randn({2, 3, 4}).to(dtype), values);
  check_deferred(linear, pytorch_linear, at::randn({6, 4}).to(dtype), values);
}

TEST_CASE("so are those of matmul and addmm", "[runtime][model][deferred]") {
  torch::manual_seed(4);
  check_deferred([](const auto& x, const auto& p) { return fused_matmul(x, p[0]); },
                 [](const auto& x, const auto& p) { return at::matmul(x, p[0]); }, at::randn({2, 3, 4}),
                 {at::randn({4, 5})});
  check_deferred([](const auto& x, const auto& p) { return fused_addmm(p[1], x, p[0]); },
                 [](const auto& x, const auto& p) { return at::addmm(p[1], x, p[0]); }, at::randn({6, 4}),
                 {at::randn({4, 5}), at::randn({5})});
}

TEST_CASE("so are those of weights that are transposed first", "[runtime][model][deferred]") {
  torch::manual_seed(8);
  const at::Tensor input = at::randn({2, 3, 4}), rows = at::randn({6, 4});
  const Parameters out_in{at::randn({5, 4}), at::randn({5})}, in_out{at::randn({4, 5}), at::randn({5})};
  check_deferred([](const auto& x, const auto& p) { return fused_matmul(x, p[0].t()); },
                 [](const auto& x, const auto& p) { return at::matmul(x, p[0].t()); }, input, {out_in[0]});
  check_deferred([](const auto& x, const auto& p) { return fused_addmm(p[1], x, p[0].transpose(0, 1)); },
                 [](const auto& x, const auto& p) { return at::addmm(p[1], x, p[0].transpose(0, 1)); }, rows, out_in);
  for (const auto& x : {input, rows}) {
    check_deferred(
        [](const auto& in, const auto& p) {
          return fused_linear(in, p[0].permute({1, 0}), p[1]);
        },
        [](const auto& in, const auto& p) {
          return at::linear(in, p[0].permute({1, 0}), p[1]);
        },
        x, in_out);
  }
}

TEST_CASE("a weight that two GEMMs and another operator use gets the sum", "[runtime][model][deferred]") {
  torch::manual_seed(5);
  const auto twice = [](const auto& multiply) {
    return [multiply](const at::Tensor& x, const Parameters& p) {
      return multiply(at::tanh(multiply(x, p[0])), p[0]) + p[0].sum();
    };
  };
  const at::Tensor input = at::randn({3, 4});
  const Parameters values{at::randn({4, 4})};
  const auto expected =
      expected_gradients(twice([](const auto& x, const auto& w) { return at::matmul(x, w); }), input, values);
  Owner owner;
  auto split = run_split(owner, twice([](const auto& x, const auto& w) { return fused_matmul(x, w); }), input, values);
  REQUIRE(split.work.size() == 1);
  CHECK(owner.taken.empty());
  split.work[0]();
  REQUIRE(owner.taken.size() == 1);
  CHECK(at::allclose(owner.taken[0][0], expected[1], 1e-6, 1e-6));
}

TEST_CASE("what cannot be deferred comes with the backward", "[runtime][model][deferred]") {
  torch::manual_seed(6);
  const at::Tensor input = at::randn({3, 4});
  SECTION("a weight that is computed first") {
    check_at_once([](const auto& x, const auto& p) { return fused_matmul(x, p[0] * 2); },
                  [](const auto& x, const auto& p) { return at::matmul(x, p[0] * 2); }, input, {at::randn({4, 5})});
    check_at_once([](const auto& x, const auto& p) { return fused_matmul(x, p[0].narrow(1, 0, 4).t()); },
                  [](const auto& x, const auto& p) { return at::matmul(x, p[0].narrow(1, 0, 4).t()); }, input,
                  {at::randn({5, 8})});
  }
  SECTION("factors of addmm") {
    check_at_once([](const auto& x, const auto& p) { return fused_addmm(p[1], x, p[0], 1, 2); },
                  [](const auto& x, const auto& p) { return at::addmm(p[1], x, p[0], 1, 2); }, input,
                  {at::randn({4, 5}), at::randn({5})});
  }
  SECTION("a batch of matrices as weight") {
    check_at_once([](const auto& x, const auto& p) { return fused_matmul(x, p[0]); },
                  [](const auto& x, const auto& p) { return at::matmul(x, p[0]); }, input, {at::randn({2, 4, 5})});
  }
}

TEST_CASE("without an open collection, a backward computes all gradients", "[runtime][model][deferred]") {
  Owner owner;
  Parameters views{at::ones({5, 4})};
  attach_gather_node(views, std::make_shared<CallInBackward>(CallInBackward{.parameters = &owner, .unit = 3}));
  linear(at::ones({3, 4}).requires_grad_(), views).sum().backward();
  REQUIRE(owner.taken.size() == 1);
  CHECK(at::equal(owner.taken[0][0], at::full({5, 4}, 3.0)));
}

TEST_CASE("the memory of a GEMM's input is kept until its gradient is computed, no longer",
          "[runtime][model][deferred]") {
  Owner owner;
  std::weak_ptr<int> memory;
  auto work = [&] {
    auto alive = std::make_shared<int>();
    memory = alive;
    static float values[12] = {};
    const at::Tensor input = at::from_blob(values, {3, 4}, [alive](void*) {});
    Parameters views{at::ones({5, 4})};
    attach_gather_node(views, std::make_shared<CallInBackward>(CallInBackward{.parameters = &owner, .unit = 3}));
    owner.deferred.open();
    linear(input, views).sum().backward();
    return owner.deferred.close();
  }();
  CHECK_FALSE(memory.expired());
  REQUIRE(work.size() == 1);
  work[0]();
  CHECK(owner.taken.size() == 1);
  CHECK(memory.expired());
}
