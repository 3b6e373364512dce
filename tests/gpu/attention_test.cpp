// Attention with known masks and grouped heads on CUDA tensors, against PyTorch's own in fp64 and, in 16 bits, no
// further from it than PyTorch's own with the mask and the repeated heads. Without a CUDA device it is skipped.
#include "runtime/model/layers/attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <vector>

#include "support/cuda_device.hpp"

namespace {

using dslaunch::runtime::model::constants::KnownMasks;
using dslaunch::runtime::model::layers::attention;
using dslaunch::test::has_device;
using Tensors = std::vector<at::Tensor>;
using Attend = std::function<at::Tensor(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)>;

constexpr int64_t kQueryHeads = 6, kHeads = 2;

// The output and the gradients of query, key and value.
Tensors results(const Attend& attend, const Tensors& values, at::ScalarType type) {
  Tensors leaves;
  for (const auto& value : values) leaves.push_back(value.to(at::kCUDA, type).detach().set_requires_grad(true));
  const at::Tensor out = attend(leaves[0], leaves[1], leaves[2]);
  Tensors all{out.detach()};
  for (auto& gradient : torch::autograd::grad({out.square().sum()}, leaves)) all.push_back(gradient);
  return all;
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return ((a.to(at::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

void compare(const Attend& ours, const Attend& theirs, int64_t positions, int64_t width) {
  at::manual_seed(3);
  Tensors values;
  for (const int64_t heads : {kQueryHeads, kHeads, kHeads}) {
    values.push_back(at::randn({2, heads, positions, width}, at::kDouble).to(at::kBFloat16).to(at::kDouble));
  }
  const auto exact = results(theirs, values, at::kDouble);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto plain = results(theirs, values, type), got = results(ours, values, type);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO("result " << i << " in " << at::toString(type) << ", " << positions << " x " << width);
      CHECK(distance(got[i], exact[i]) <= std::max(5e-6, 1.5 * distance(plain[i], exact[i])));
    }
  }
}

at::Tensor repeated(const at::Tensor& tensor) {
  return tensor.repeat_interleave(kQueryHeads / kHeads, 1);
}

at::Tensor causal(int64_t positions) {
  return at::ones({positions, positions}, at::TensorOptions().dtype(at::kBool).device(at::kCUDA))
      .tril()
      .expand({2, 1, positions, positions});
}

}  // namespace

TEST_CASE("known masks and grouped heads change attention by roundings alone", "[gpu][attention]") {
  if (!has_device()) return;
  for (const int64_t positions : {1, 33, 257}) {
    for (const int64_t width : {8, 64, 80}) {
      const at::Tensor mask = causal(positions);
      KnownMasks masks;
      masks.add(mask);
      compare(
          [&](const auto& query, const auto& key, const auto& value) {
            return attention(query, key, value, {.mask = mask, .repeats = kQueryHeads / kHeads}, &masks);
          },
          [&](const auto& query, const auto& key, const auto& value) {
            return at::scaled_dot_product_attention(query, repeated(key), repeated(value), mask);
          },
          positions, width);
    }
  }
}

TEST_CASE("a mask that is not known, and says what no option does, is applied", "[gpu][attention]") {
  if (!has_device()) return;
  at::Tensor mask = causal(65).clone();
  mask[1].slice(2, 40, 65).fill_(false);  // padding
  KnownMasks masks;
  masks.add(mask);
  compare(
      [&](const auto& query, const auto& key, const auto& value) {
        return attention(query, key, value, {.mask = mask, .repeats = kQueryHeads / kHeads}, &masks);
      },
      [&](const auto& query, const auto& key, const auto& value) {
        return at::scaled_dot_product_attention(query, repeated(key), repeated(value), mask);
      },
      65, 64);
}

TEST_CASE("a padding mask of one row for all queries changes attention by roundings alone", "[gpu][attention]") {
  if (!has_device()) return;
  for (const int64_t positions : {33, 64, 257}) {
    at::Tensor row = at::ones({2, 1, 1, positions}, at::TensorOptions().dtype(at::kBool).device(at::kCUDA));
    row[1].slice(2, positions / 2, positions).fill_(false);
    const at::Tensor mask = row.expand({2, 1, positions, positions});
    KnownMasks masks;
    dslaunch::runtime::model::layers::ConvertedMasks converted;
    compare(
        [&](const auto& query, const auto& key, const auto& value) {
          return attention(query, key, value, {.mask = mask, .repeats = kQueryHeads / kHeads, .converted = &converted},
                           &masks);
        },
        [&](const auto& query, const auto& key, const auto& value) {
          return at::scaled_dot_product_attention(query, repeated(key), repeated(value), mask.contiguous());
        },
        positions, 64);
  }
}

TEST_CASE("a causal padding mask that is converted once changes attention by roundings alone", "[gpu][attention]") {
  if (!has_device()) return;
  at::Tensor mask = causal(65).clone();
  mask[1].slice(2, 40, 65).fill_(false);
  KnownMasks masks;
  dslaunch::runtime::model::layers::ConvertedMasks converted;
  compare(
      [&](const auto& query, const auto& key, const auto& value) {
        const auto attend = [&] {
          return attention(query, key, value, {.mask = mask, .repeats = kQueryHeads / kHeads, .converted = &converted},
                           &masks);
        };
        attend();  // the second call finds the converted mask
        return attend();
      },
      [&](const auto& query, const auto& key, const auto& value) {
        return at::scaled_dot_product_attention(query, repeated(key), repeated(value), mask);
      },
      65, 64);
}

TEST_CASE("a mask of fp32 numbers in any layout is applied in 16 bits", "[gpu][attention]") {
  if (!has_device()) return;
  const double lowest = std::numeric_limits<float>::lowest();
  const at::Tensor additive =
      at::zeros({64, 64}, at::TensorOptions().device(at::kCUDA)).masked_fill(causal(64)[0][0].logical_not(), lowest);
  // Its keys are not next to each other.
  const at::Tensor mask = additive.t().contiguous().t().expand({2, 1, 64, 64});
  compare(
      [&](const auto& query, const auto& key, const auto& value) {
        KnownMasks masks;
        return attention(query, key, value, {.mask = mask, .repeats = kQueryHeads / kHeads}, &masks);
      },
      [&](const auto& query, const auto& key, const auto& value) {
        // In another layout PyTorch would take operators that compute in fp32, which round less than its kernels.
        const at::Tensor same = mask.to(query.scalar_type()).contiguous();
        return at::scaled_dot_product_attention(query, repeated(key), repeated(value), same);
      },
      64, 64);
}
