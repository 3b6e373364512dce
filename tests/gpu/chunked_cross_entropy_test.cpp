// A head and its loss by chunks of rows on a GPU, against fp64 and beside the operators one by one. Without a CUDA
// device they are skipped.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/device/gemm.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "support/cuda_device.hpp"

namespace {

using dslaunch::runtime::model::layers::chunked_cross_entropy;
using dslaunch::runtime::model::layers::fused_cross_entropy;
using dslaunch::runtime::model::layers::HeadLoss;
using dslaunch::test::has_device;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kIgnored = -100;

struct Case {
  int64_t rows = 300, width = 48, classes = 257;
  bool is_out_in = true, has_bias = false;
  int64_t reduction = at::Reduction::Mean;
  dslaunch::runtime::device::GemmCachePtr gemms = {};
};

Tensors values_of(const Case& c) {
  at::manual_seed(4);
  Tensors out{at::randn({c.rows, c.width}, at::kDouble),
              at::randn(c.is_out_in ? at::IntArrayRef({c.classes, c.width}) : at::IntArrayRef({c.width, c.classes}),
                        at::kDouble) *
                  0.2};
  if (c.has_bias) out.push_back(at::randn({c.classes}, at::kDouble));
  return out;
}

at::Tensor labels_of(const Case& c) {
  auto labels = at::arange(c.rows, at::kLong).mul(7).remainder(c.classes);
  if (c.rows > 1) labels[1] = kIgnored;
  return labels.to(at::kCUDA);
}

Tensors leaves(const Tensors& values, at::ScalarType type) {
  Tensors out;
  for (const auto& value : values) out.push_back(value.to(at::kCUDA, type).detach().set_requires_grad(true));
  return out;
}

at::Tensor logits_of(const Case& c, const Tensors& in) {
  const at::Tensor matrix = c.is_out_in ? in[1].t() : in[1];
  return c.has_bias ? at::addmm(in[2], in[0], matrix) : in[0].mm(matrix);
}

// The loss and the gradients under a loss scale.
template <typename Loss>
Tensors results(const Tensors& inputs, double scale, const Loss& loss) {
  const at::Tensor total = loss(inputs);
  Tensors out{total.detach()};
  for (auto& gradient : torch::autograd::grad({total * scale}, inputs)) out.push_back(gradient);
  return out;
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return ((a.to(at::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

HeadLoss head_loss(const Case& c, int64_t chunk_rows) {
  return {.is_out_in = c.is_out_in,
          .classes = c.classes,
          .reduction = c.reduction,
          .ignore_index = kIgnored,
          .in_float = true,
          .chunk_rows = chunk_rows,
          .gemms = c.gemms};
}

// Half a unit in the last place of 1.
double rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-9 : type == at::kHalf ? 0x1p-12 : 0x1p-25;
}

// So that gradients of 16 bits are neither too small nor too large for fp16, as a loss scale does.
double scale_of(const Case& c, at::ScalarType type) {
  if (type != at::kHalf) return 0.25;
  return c.reduction == at::Reduction::Mean ? 16384.0 : 256.0;
}

// The gradient of the input by PyTorch's GEMMs of so many rows: those of few rows add parts that are rounded.
double distance_of_gemms(const Case& c, const Tensors& inputs, const at::Tensor& labels, double scale,
                         at::ScalarType type, int64_t chunk_rows, const at::Tensor& exact) {
  const auto in = leaves(inputs, at::kDouble);
  const auto logits = logits_of(c, in);
  const auto loss = at::cross_entropy_loss(logits, labels, {}, c.reduction, kIgnored) * scale;
  const auto gradient = torch::autograd::grad({loss}, {logits})[0].to(type);
  const auto matrix = (c.is_out_in ? in[1] : in[1].t()).detach().to(type);
  Tensors parts;
  for (const auto& part : gradient.split(chunk_rows > 0 ? chunk_rows : c.rows)) parts.push_back(part.mm(matrix));
  return distance(at::cat(parts), exact);
}

// Relative errors: 2e-6 in fp32, in 16 bits at most a quarter more than those of the operators one by one. The loss is
// the mean of losses that are off by the roundings of a logit or two of about 1, independent of each other: four
// standard deviations.
double bound_of(const Case& c, size_t result, at::ScalarType type, double of_operators) {
  const double of_loss = result == 0 ? 4 * rounding(type) / std::sqrt(static_cast<double>(c.rows)) : 0.0;
  return std::max({2e-6, 1.25 * of_operators, of_loss});
}

void compare(const Case& c, int64_t chunk_rows) {
  const auto labels = labels_of(c);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Tensors seen;  // what the type can hold, in fp64
    for (const auto& value : values_of(c)) seen.push_back(value.to(type));
    const double scale = scale_of(c, type);
    const auto exact = results(leaves(seen, at::kDouble), scale, [&](const Tensors& in) {
      return at::cross_entropy_loss(logits_of(c, in), labels, {}, c.reduction, kIgnored);
    });
    const auto plain = results(leaves(seen, type), scale, [&](const Tensors& in) {
      return fused_cross_entropy(logits_of(c, in), labels, {}, c.reduction, kIgnored, 0.0, /*in_float=*/true);
    });
    const auto by_chunks = [&](const Tensors& in) {
      const auto bias = c.has_bias ? std::optional(in[2]) : std::nullopt;
      return chunked_cross_entropy(in[0], in[1], bias, labels, {}, head_loss(c, chunk_rows));
    };
    const auto found = results(leaves(seen, type), scale, by_chunks);
    const auto again = results(leaves(seen, type), scale, by_chunks);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO("result " << i << " in " << at::toString(type) << ", " << c.rows << " rows in chunks of " << chunk_rows
                     << ", " << c.classes << " classes, out_in " << c.is_out_in << ", bias " << c.has_bias);
      CHECK(found[i].scalar_type() == plain[i].scalar_type());
      CHECK(found[i].sizes() == plain[i].sizes());
      double of_operators = distance(plain[i], exact[i]);
      if (i == 1) {
        of_operators = std::max(of_operators, distance_of_gemms(c, seen, labels, scale, type, chunk_rows, exact[i]));
      }
      CHECK(distance(found[i], exact[i]) <= bound_of(c, i, type, of_operators));
      CHECK(again[i].equal(found[i]));
    }
  }
}

}  // namespace

TEST_CASE("a head's loss by chunks on a device is that of whole logits", "[gpu][chunked]") {
  if (!has_device()) return;
  for (const int64_t chunk_rows : {0, 1, 64, 300}) {
    for (const bool is_out_in : {true, false}) {
      for (const bool has_bias : {true, false}) {
        compare({.is_out_in = is_out_in, .has_bias = has_bias}, chunk_rows);
      }
    }
  }
  compare({.rows = 1}, 0);
  compare({.rows = 37, .classes = 1}, 16);
  compare({.rows = 130, .classes = 50257}, 32);
  compare({.reduction = at::Reduction::Sum}, 64);
}

TEST_CASE("a head's loss by chunks with measured algorithms is that of whole logits", "[gpu][chunked][gemm]") {
  if (!has_device()) return;
  const auto gemms = c10::make_intrusive<dslaunch::runtime::device::GemmCache>("");
  for (const bool is_out_in : {true, false}) {
    compare({.rows = 4300, .width = 1552, .classes = 2056, .is_out_in = is_out_in, .gemms = gemms}, 2112);
  }
  CHECK(gemms->counts().measured > 0);
}

TEST_CASE("a head without labels that count gives no gradient on a device", "[gpu][chunked]") {
  if (!has_device()) return;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Case c{.rows = 20};
    const auto in = leaves(values_of(c), type);
    const auto labels = at::full({c.rows}, kIgnored, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    const auto loss = chunked_cross_entropy(in[0], in[1], {}, labels, {}, head_loss(c, 8));
    CHECK(loss.isnan().item<bool>());
    for (const auto& gradient : torch::autograd::grad({loss}, in)) CHECK(gradient.eq(0).all().item<bool>());
  }
}

TEST_CASE("the logits of a head never exist whole", "[gpu][chunked]") {
  if (!has_device()) return;
  const Case c{.rows = 16384, .width = 768, .classes = 50304};
  const auto in = leaves(values_of(c), at::kBFloat16);
  const auto labels = labels_of(c);
  auto* allocator = at::getDeviceAllocator(at::kCUDA);
  const auto allocated = [&] {
    return allocator->getDeviceStats(0)
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  };
  const int64_t before = allocated().current;
  allocator->resetPeakStats(0);
  const auto loss = chunked_cross_entropy(in[0], in[1], {}, labels, {}, head_loss(c, 0));
  const auto gradients = torch::autograd::grad({loss}, in);
  const int64_t logits = c.rows * c.classes * 2;
  CHECK(allocated().peak - before < logits / 2);  // of two that plain autograd holds at once
}
