// The operators that our kernels compute, on CUDA tensors and through the module, against PyTorch's own in fp64 and, in
// 16 bits, no further from them than PyTorch's own in 16 bits. Without a CUDA device they are skipped.
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/layer_norm.hpp"
#include "runtime/model/layers/linear.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "runtime/device/gemm.hpp"
#include "support/cuda_device.hpp"

namespace {

using dslaunch::runtime::model::layers::fused_cross_entropy;
using dslaunch::runtime::model::layers::fused_layer_norm;
using dslaunch::runtime::model::layers::fused_layer_norm_and_input;
using dslaunch::runtime::model::layers::fused_linear;
using dslaunch::test::has_device;
using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<int64_t>;
using Operator = std::function<at::Tensor(const Tensors&)>;

constexpr int64_t kIgnored = -100;

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape, at::kDouble);
}

Tensors leaves(const Tensors& values, at::ScalarType type) {
  Tensors out;
  for (const auto& value : values) out.push_back(value.to(at::kCUDA, type).detach().set_requires_grad(true));
  return out;
}

// The output, and its gradients where it is weighed by fixed random numbers.
Tensors results(const Operator& op, const Tensors& inputs) {
  const at::Tensor out = op(inputs);
  const at::Tensor weights = normal(out.sizes(), 9).to(out.options().requires_grad(false));
  Tensors all{out.detach()};
  for (auto& gradient : torch::autograd::grad({out}, inputs, {weights})) all.push_back(gradient);
  return all;
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return ((a.to(at::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

// Relative errors of output and gradients: 2e-6 in fp32, in 16 bits at most a quarter more than PyTorch's own.
void compare(const Operator& ours, const Operator& theirs, const Tensors& values) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Tensors seen;  // what the type can hold, in fp64
    for (const auto& value : values) seen.push_back(value.to(type));
    const auto exact = results(theirs, leaves(seen, at::kDouble));
    const auto plain = results(theirs, leaves(seen, type)), got = results(ours, leaves(seen, type));
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO("result " << i << " in " << at::toString(type));
      CHECK(got[i].scalar_type() == plain[i].scalar_type());
      CHECK(got[i].sizes() == plain[i].sizes());
      CHECK(distance(got[i], exact[i]) <= std::max(2e-6, 1.25 * distance(plain[i], exact[i])));
    }
    const auto again = results(ours, leaves(seen, type));
    for (size_t i = 0; i < got.size(); ++i) CHECK(again[i].equal(got[i]));
  }
}

at::Tensor some_labels(int64_t rows, int64_t classes) {
  auto labels = at::arange(rows, at::kLong).mul(7).remainder(classes);
  if (rows > 1) labels[1] = kIgnored;
  return labels.to(at::kCUDA);
}

}  // namespace

TEST_CASE("cross entropy of logits in 16 bits is that of their copy in fp32", "[gpu][layers]") {
  if (!has_device()) return;
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
    for (const int64_t classes : {2, 257, 50257}) {
      const auto labels = some_labels(37, classes);
      compare(
          [&](const Tensors& in) {
            return fused_cross_entropy(in[0], labels, {}, reduction, kIgnored, 0.0, /*in_float=*/true);
          },
          [&](const Tensors& in) {
            const auto logits = in[0].scalar_type() == at::kDouble ? in[0] : in[0].to(at::kFloat);
            return at::cross_entropy_loss(logits, labels, {}, reduction, kIgnored).to(at::kFloat);
          },
          {normal({37, classes}, 1) * 3});
    }
  }
}

TEST_CASE("cross entropy of logits in 16 bits, as a model computes it in them, is rounded once", "[gpu][layers]") {
  if (!has_device()) return;
  for (const int64_t classes : {2, 257, 30522}) {
    const auto labels = some_labels(37, classes);
    compare(
        [&](const Tensors& in) {
          return fused_cross_entropy(in[0], labels, {}, at::Reduction::Mean, kIgnored, 0.0, /*in_float=*/false);
        },
        [&](const Tensors& in) { return at::cross_entropy_loss(in[0], labels, {}, at::Reduction::Mean, kIgnored); },
        {normal({37, classes}, 1) * 3});
  }
}

TEST_CASE("cross entropy without labels that count is not a number, and its gradient is zero", "[gpu][layers]") {
  if (!has_device()) return;
  const auto logits = leaves({normal({5, 9}, 1)}, at::kBFloat16)[0];
  const auto labels = at::full({5}, kIgnored, logits.options().dtype(at::kLong).requires_grad(false));
  const auto loss = fused_cross_entropy(logits, labels, {}, at::Reduction::Mean, kIgnored, 0.0, true);
  CHECK(loss.isnan().item<bool>());
  CHECK(torch::autograd::grad({loss}, {logits})[0].eq(0).all().item<bool>());
}

TEST_CASE("what the kernels of cross entropy do not do is left to PyTorch's operator", "[gpu][layers]") {
  if (!has_device()) return;
  const auto logits = leaves({normal({4, 6, 5}, 1)}, at::kBFloat16)[0];
  const auto labels = some_labels(20, 6).view({4, 5}), flat = some_labels(4, 6);
  const auto weight = at::rand({6}, logits.options().dtype(at::kFloat).requires_grad(false));
  const auto mean = at::Reduction::Mean;
  const auto wide = logits.to(at::kFloat), first = logits.select(2, 0);
  CHECK(fused_cross_entropy(logits, labels, {}, mean, kIgnored, 0.0, true)
            .equal(at::cross_entropy_loss(wide, labels, {}, mean, kIgnored)));
  CHECK(fused_cross_entropy(first, flat, weight, mean, kIgnored, 0.1, true)
            .equal(at::cross_entropy_loss(first.to(at::kFloat), flat, weight, mean, kIgnored, 0.1)));
  CHECK(fused_cross_entropy(first, flat, {}, at::Reduction::None, kIgnored, 0.0, true)
            .equal(at::cross_entropy_loss(first.to(at::kFloat), flat, {}, at::Reduction::None, kIgnored)));
  CHECK(fused_cross_entropy(first, flat, {}, mean, kIgnored, 0.0, /*in_float=*/false).scalar_type() == at::kBFloat16);
}

TEST_CASE("layer norm and its three gradients are PyTorch's", "[gpu][layers]") {
  if (!has_device()) return;
  for (const int64_t width : {8, 768, 2056, 4096, 12, 9000}) {  // the last two are PyTorch's own
    const auto shift = normal({width}, 5).abs();
    compare([&](const Tensors& in) { return fused_layer_norm(in[0], {width}, in[1], in[2], 1e-5); },
            [&](const Tensors& in) { return at::layer_norm(in[0], {width}, in[1], in[2], 1e-5); },
            {normal({3, 70, width}, 2) * 2 + shift, normal({width}, 3), normal({width}, 4)});
  }
  // Two dims at a time; rows that do not lie behind one another.
  compare(
      [](const Tensors& in) {
        return fused_layer_norm(in[0].transpose(0, 1), {4, 16}, in[1], in[2], 1e-3);
      },
      [](const Tensors& in) {
        return at::layer_norm(in[0].transpose(0, 1), {4, 16}, in[1], in[2], 1e-3);
      },
      {normal({4, 6, 16}, 2), normal({4, 16}, 3), normal({4, 16}, 4)});
}

TEST_CASE("a layer norm adds the gradient of what goes past it", "[gpu][layers]") {
  if (!has_device()) return;
  for (const int64_t width : {8, 768, 2048, 2056, 4096, 8192, 12}) {  // the last one is PyTorch's own
    compare(
        [&](const Tensors& in) {
          const auto [out, again] = fused_layer_norm_and_input(in[0], {width}, in[1], in[2], 1e-5);
          CHECK((width == 12 || out.grad_fn() == again.grad_fn()));
          return out.tanh() + again;
        },
        [&](const Tensors& in) { return at::layer_norm(in[0], {width}, in[1], in[2], 1e-5).tanh() + in[0]; },
        {normal({3, 700, width}, 2) * 2, normal({width}, 3), normal({width}, 4)});
  }
}

TEST_CASE("a linear layer and its three gradients are PyTorch's", "[gpu][layers]") {
  if (!has_device()) return;
  for (const int64_t rows : {1, 100}) {
    compare([](const Tensors& in) { return fused_linear(in[0], in[1], in[2]); },
            [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); },
            {normal({2, rows, 48}, 6), normal({33, 48}, 7), normal({33}, 8)});
  }
}

TEST_CASE("a linear layer with measured algorithms has PyTorch's gradients", "[gpu][layers][gemm]") {
  if (!has_device()) return;
  const auto gemms = c10::make_intrusive<dslaunch::runtime::device::GemmCache>("");
  compare([&](const Tensors& in) { return fused_linear(in[0], in[1], in[2], {.gemms = gemms}); },
          [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); },
          {normal({2, 1048, 1552}, 6), normal({2064, 1552}, 7), normal({2064}, 8)});
  CHECK(gemms->counts().measured > 0);
}

TEST_CASE("a linear layer whose output is cut has PyTorch's gradients", "[gpu][layers]") {
  if (!has_device()) return;
  using dslaunch::runtime::model::layers::Cut;
  using dslaunch::runtime::model::layers::fused_addmm_cut;
  using dslaunch::runtime::model::layers::fused_linear_cut;
  const auto joined = [](const Tensors& pieces) {  // gradients that lie as attention's do, and one that does not
    return pieces[0].tanh() * pieces[1].sin() + pieces[2].slice(-1, 0, pieces[0].size(-1));
  };
  // Widths of 8 columns and more, and some that PyTorch puts together.
  for (const auto& shape : std::vector<std::pair<Sizes, int64_t>>{
           {{16, 16, 16}, 1}, {{64, 64, 128}, 777}, {{768, 768, 768}, 300}, {{12, 12, 12}, 50}, {{7, 7, 9}, 9}}) {
    const Sizes& widths = shape.first;
    const int64_t rows = shape.second;
    const int64_t columns = widths[0] + widths[1] + widths[2];
    const Cut cut{Cut::Kind::kSizes, widths, 2};
    compare([&](const Tensors& in) { return joined(fused_linear_cut(in[0], in[1], in[2], cut)); },
            [&](const Tensors& in) { return joined(at::linear(in[0], in[1], in[2]).split_with_sizes(widths, 2)); },
            {normal({2, rows, 48}, 6), normal({columns, 48}, 7), normal({columns}, 8)});
    const Cut viewed{Cut::Kind::kSizes, widths, -1, Sizes{2, rows, columns}};
    compare([&](const Tensors& in) { return joined(fused_addmm_cut(in[2], in[0], in[1], 1, 1, viewed)); },
            [&](const Tensors& in) {
              return joined(at::addmm(in[2], in[0], in[1]).view({2, rows, columns}).split_with_sizes(widths, 2));
            },
            {normal({2 * rows, 48}, 6), normal({48, columns}, 7), normal({columns}, 8)});
  }
}

TEST_CASE("the output of a linear layer may be written to in place", "[gpu][layers]") {
  if (!has_device()) return;
  compare([](const Tensors& in) { return fused_linear(in[0], in[1], in[2]).relu_(); },
          [](const Tensors& in) { return at::linear(in[0], in[1], in[2]).relu_(); },
          {normal({2, 5, 16}, 6), normal({8, 16}, 7), normal({8}, 8)});
}

TEST_CASE("gradients of gradients are PyTorch's", "[gpu][layers]") {
  if (!has_device()) return;
  const auto labels = some_labels(6, 16);
  const auto penalty = [](const at::Tensor& out, const Tensors& in) {
    return torch::autograd::grad({out.square().sum()}, {in[0]}, {}, true, /*create_graph=*/true)[0].square().sum();
  };
  const Operator ours = [&](const Tensors& in) {
    const auto hidden = fused_linear(fused_layer_norm(in[0], {16}, in[1], in[2], 1e-5), in[3], in[1]);
    return penalty(fused_cross_entropy(hidden, labels, {}, at::Reduction::Mean, kIgnored, 0.0, true), in);
  };
  const Operator theirs = [&](const Tensors& in) {
    const auto hidden = at::linear(at::layer_norm(in[0], {16}, in[1], in[2], 1e-5), in[3], in[1]);
    return penalty(at::cross_entropy_loss(hidden, labels, {}, at::Reduction::Mean, kIgnored), in);
  };
  const Tensors values{normal({6, 16}, 1), normal({16}, 2), normal({16}, 3), normal({16, 16}, 4)};
  const auto exact = results(theirs, leaves(values, at::kDouble)), got = results(ours, leaves(values, at::kFloat));
  for (size_t i = 0; i < exact.size(); ++i) {
    INFO("result " << i);
    CHECK(distance(got[i], exact[i]) <= 1e-5);
  }
}
