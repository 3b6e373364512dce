// Rows of experts on the GPU against the same operators in fp64 on the CPU, whose numbers are tests/unit's, and a whole
// layer with an expert without tokens. Without a CUDA device they are skipped.
#include "runtime/model/layers/experts.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/model/layers/router.hpp"
#include "support/cuda_device.hpp"

namespace {

namespace layers = dslaunch::runtime::model::layers;
using dslaunch::test::has_device;
using Tensors = std::vector<at::Tensor>;

struct Shape {
  int64_t tokens, choices, experts, columns;
};

// Expert 1 has no token; with `none` some entries are of no expert.
at::Tensor chosen_experts(const Shape& shape, bool none) {
  at::manual_seed(static_cast<uint64_t>(shape.tokens));
  at::Tensor experts = at::randint(shape.experts, {shape.tokens * shape.choices}, at::kLong);
  experts.masked_fill_(experts.eq(1), 0);
  if (none) experts.slice(0, 0, c10::nullopt, 3).fill_(shape.experts);
  return experts;
}

// Rows, sums, gradients of tokens and weights. Rows of no expert are zeros.
Tensors results(const Tensors& values, const at::Tensor& experts, const Shape& shape, at::ScalarType type,
                at::ScalarType weight_type, at::Device device) {
  const at::Tensor tokens = values[0].to(device, type).detach().requires_grad_();
  const at::Tensor weights = values[1].to(device, weight_type).detach().requires_grad_();
  const auto order = layers::expert_order(experts.to(device), shape.experts);
  const at::Tensor rows = layers::expert_rows(tokens, order, shape.choices);
  const at::Tensor sum = layers::expert_sum(rows, weights, order, shape.choices, type);
  const auto gradients = torch::autograd::grad({sum}, {tokens, weights}, {values[2].to(device, type)});
  const at::Tensor is_of_none =
      at::arange(rows.size(0), order.ends.options()).ge(order.ends.slice(0, shape.experts - 1)).unsqueeze(-1);
  return {rows.detach().masked_fill(is_of_none, 0), sum.detach(), gradients[0], gradients[1]};
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return ((a.to(at::kCPU, at::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

}  // namespace

TEST_CASE("the order of experts' rows is that of the CPU", "[gpu][experts]") {
  if (!has_device()) return;
  for (const Shape& shape : {Shape{1, 1, 1, 8}, Shape{31, 1, 2, 8}, Shape{512, 2, 8, 8}, Shape{1025, 8, 128, 8},
                             Shape{8191, 8, 511, 8}, Shape{700, 3, 600, 8}}) {
    for (const bool none : {false, true}) {
      const at::Tensor experts = chosen_experts(shape, none);
      const auto expected = layers::expert_order(experts, shape.experts);
      const auto got = layers::expert_order(experts.to(at::kCUDA), shape.experts);
      CHECK(got.entry_of_row.cpu().equal(expected.entry_of_row));
      CHECK(got.row_of_entry.cpu().equal(expected.row_of_entry));
      CHECK(got.ends.cpu().equal(expected.ends));
    }
  }
}

TEST_CASE("rows of experts, their sums and gradients are those of fp64", "[gpu][experts]") {
  if (!has_device()) return;
  for (const Shape& shape : {Shape{1, 1, 2, 8}, Shape{37, 2, 8, 1024}, Shape{300, 8, 128, 2056}, Shape{65, 32, 64, 24},
                             Shape{70, 2, 4, 4096}, Shape{33, 3, 8, 12}}) {  // the last one by PyTorch's operators
    for (const bool none : {false, true}) {
      const at::Tensor experts = chosen_experts(shape, none);
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const auto weight_type : {at::kFloat, type}) {
          INFO(shape.tokens << " tokens, " << shape.columns << " columns in " << at::toString(type) << ", weights in "
                            << at::toString(weight_type) << (none ? ", some of no expert" : ""));
          at::manual_seed(5);
          const Tensors seen{at::randn({shape.tokens, shape.columns}, at::kDouble).to(type),
                             at::rand({shape.tokens * shape.choices}, at::kDouble).to(weight_type),
                             at::randn({shape.tokens, shape.columns}, at::kDouble).to(type)};
          const auto exact = results(seen, experts, shape, at::kDouble, at::kDouble, at::kCPU);
          const auto got = results(seen, experts, shape, type, weight_type, at::kCUDA);
          const auto again = results(seen, experts, shape, type, weight_type, at::kCUDA);
          // Sums are rounded once; a token's gradient is a sum of rows that were rounded.
          const double rounding = type == at::kFloat ? 1e-6 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
          for (size_t i = 0; i < got.size(); ++i) {
            CHECK(distance(got[i], exact[i]) <= rounding);
            CHECK(again[i].equal(got[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("gradients of a layer of experts, one of them without tokens, are those of fp64", "[gpu][experts]") {
  if (!has_device()) return;
  const Shape shape{257, 2, 8, 64};
  const at::Tensor experts = chosen_experts(shape, false);
  at::manual_seed(6);
  const auto made = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(at::kBFloat16); };
  const Tensors values{made({257, 64}), made({8, 96, 64}) * 0.125, made({8, 64, 96}) * 0.125, made({514}),
                       made({257, 64})};
  const auto run = [&](at::ScalarType type, at::Device device, const auto& multiply) {
    Tensors leaves;
    for (size_t i = 0; i < 4; ++i) leaves.push_back(values[i].to(device, type).detach().requires_grad_());
    const auto order = layers::expert_order(experts.to(device), shape.experts);
    const at::Tensor rows = layers::expert_rows(leaves[0], order, shape.choices);
    const at::Tensor inner = at::silu(multiply(rows, leaves[1], order.ends));
    const at::Tensor out =
        layers::expert_sum(multiply(inner, leaves[2], order.ends), leaves[3], order, shape.choices, type);
    auto found = torch::autograd::grad({out}, leaves, {values[4].to(device, type)});
    found.push_back(out.detach());
    return found;
  };
  const auto exact = run(at::kDouble, at::kCPU, [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& ends) {
    Tensors parts;
    for (int64_t expert = 0, begin = 0; expert < w.size(0); ++expert) {
      const int64_t end = ends[expert].item<int64_t>();
      parts.push_back(x.slice(0, begin, end).mm(w[expert].t()));
      begin = end;
    }
    return at::cat(parts);
  });
  const auto got = run(at::kBFloat16, at::kCUDA, [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& ends) {
    return at::_grouped_mm(x, w.transpose(-2, -1), ends);
  });
  for (size_t i = 0; i < got.size(); ++i) CHECK(distance(got[i], exact[i]) <= 0x1p-6);
  for (const size_t weight : {1, 2}) CHECK(got[weight][1].eq(0).all().item<bool>());
}

TEST_CASE("a router's choices and their gradients are those of fp64", "[gpu][experts]") {
  if (!has_device()) return;
  struct Case {
    int64_t tokens, experts, choices;
  };
  for (const auto& [tokens, experts, choices] :
       {Case{1, 1, 1}, Case{37, 8, 2}, Case{300, 33, 8}, Case{65, 128, 32}, Case{70, 512, 10}, Case{70, 600, 2}}) {
    for (const bool normalizes : {false, true}) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        INFO(tokens << " tokens, " << choices << " of " << experts << " experts in " << at::toString(type));
        at::manual_seed(7);
        // No two of the 256 largest logits of a token are equal, also in bf16.
        const at::Tensor ranks = std::get<1>(at::rand({tokens, experts}, at::kDouble).sort(-1)).to(at::kDouble);
        const at::Tensor seen = ((ranks - experts) / 4).to(type);
        const at::Tensor upstream = at::randn({tokens, choices}, at::kDouble).to(at::kFloat);
        const at::Tensor exact = seen.to(at::kDouble).requires_grad_();
        auto [expected, numbers] = at::softmax(exact, -1).topk(choices, -1);
        if (normalizes) expected = expected / expected.sum(-1, true);
        const at::Tensor logits = seen.to(at::kCUDA).detach().requires_grad_();
        const auto got = layers::choose_experts(logits, choices, normalizes);
        CHECK(got.experts.cpu().equal(numbers));
        CHECK(distance(got.weights.detach(), expected.detach()) <= 1e-6);
        const auto gradient = torch::autograd::grad({got.weights}, {logits}, {upstream.to(at::kCUDA)})[0];
        const auto wanted = torch::autograd::grad({expected}, {exact}, {upstream.to(at::kDouble)})[0];
        CHECK(gradient.scalar_type() == type);
        // One choice of one is 1, whatever its logit.
        const double scale = wanted.abs().max().item<double>() + 1e-6;
        const double rounding = type == at::kFloat ? 1e-5 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-9;
        CHECK((gradient.to(at::kCPU, at::kDouble) - wanted).abs().max().item<double>() <= scale * rounding);
      }
    }
  }
}
