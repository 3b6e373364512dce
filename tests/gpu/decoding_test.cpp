// Kernels of steps that write texts, beside PyTorch in fp64: attention over pages, linear layers of a few rows.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/device/device_module.hpp"
#include "runtime/device/launch_overlap.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"
#include "runtime/model/decoding/key_cache.hpp"
#include "runtime/model/decoding/row_products.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::decoding;

namespace {

const at::Device kGpu(at::kCUDA, 0);

double bound_of(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 1e-3 : 8e-3;
}

// The largest difference in units of the largest number.
double difference(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble).cpu();
  return ((found.to(at::kDouble).cpu() - wide).abs().max() / wide.abs().max().clamp_min(1e-6)).item<double>();
}

struct Shape {
  int64_t heads, kv_heads, width;
};

}  // namespace

TEST_CASE("linear layers of a few rows are those of PyTorch", "[gpu][decoding]") {
  if (!test::has_device()) return;
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [columns, outputs] : {std::pair{8, 1}, {256, 7}, {4096, 640}, {11008, 33}, {2056, 5}, {36, 9}}) {
      for (const int64_t rows : {1, 2, 3, 5, 8, 9}) {
        INFO(type << " " << columns << " " << outputs << " " << rows);
        const auto options = at::TensorOptions(kGpu).dtype(type);
        const at::Tensor input = at::randn({1, rows, columns}, options),
                         weight = at::randn({outputs, columns}, options);
        const at::Tensor bias = at::randn({outputs}, options);
        const at::Tensor wide = at::linear(input.to(at::kDouble), weight.to(at::kDouble));
        const at::Tensor out = linears_of_rows(input, {weight}, {at::Tensor()})[0];
        CHECK(out.sizes() == wide.sizes());
        CHECK(out.scalar_type() == type);
        CHECK(difference(out, wide) <= bound_of(type));
        const at::Tensor other = at::randn({2 * outputs + 1, columns}, options);
        const auto outs = linears_of_rows(input, {weight, other, weight}, {at::Tensor(), at::Tensor(), bias});
        CHECK(at::equal(outs[0], out));
        CHECK(difference(outs[1], at::linear(input.to(at::kDouble), other.to(at::kDouble))) <= bound_of(type));
        CHECK(difference(outs[2], wide + bias.to(at::kDouble)) <= bound_of(type));
      }
    }
  }
}

TEST_CASE("attention of new tokens over pages is that over whole texts", "[gpu][decoding]") {
  if (!test::has_device()) return;
  at::manual_seed(2);
  constexpr int64_t kPage = KeyCache::kPageTokens;
  const at::Tensor tickets = at::zeros({1 << 12}, at::TensorOptions(kGpu).dtype(at::kInt));
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Shape& shape : {Shape{4, 4, 64}, {8, 2, 128}, {14, 2, 64}, {3, 1, 80}, {12, 1, 256}, {2, 1, 8}}) {
      const int64_t heads = shape.heads, kv_heads = shape.kv_heads, width = shape.width;
      for (const int64_t pages : {1, 3, 40}) {
        for (const int mask_kind : {0, 1, 2}) {  // none, bools of each text, biases of each head
          INFO(type << " " << heads << " " << kv_heads << " " << width << " " << pages << " " << mask_kind);
          constexpr int64_t kTexts = 3;
          const auto options = at::TensorOptions(kGpu).dtype(type);
          const at::Tensor query = at::randn({1, kTexts, heads, width}, options).transpose(1, 2);
          const at::Tensor key = at::randn({1, kTexts, kv_heads, width}, options).transpose(1, 2);
          const at::Tensor value = at::randn({1, kv_heads, kTexts, width}, options);
          const at::Tensor key_pages = at::randn({kTexts * pages, kv_heads, kPage, width}, options);
          const at::Tensor value_pages = at::randn({kTexts * pages, kv_heads, kPage, width}, options);
          const at::Tensor table = at::randperm(kTexts * pages).view({kTexts, pages}).to(kGpu, at::kInt);
          const int64_t most = pages * kPage;
          const at::Tensor positions = at::tensor({int64_t{0}, most / 2 + 3, most - 1});
          std::optional<at::Tensor> mask;
          if (mask_kind == 1)
            mask = (at::rand({1, 1, kTexts, most}, kGpu) < 0.7).logical_or(at::arange(most, kGpu) == 0);
          if (mask_kind == 2) mask = at::randn({heads, kTexts, most}, options);
          const StepAttention step{query, key, value, key_pages, value_pages, table, positions.to(kGpu), mask, 0.3};
          const at::Tensor out = at::empty({kTexts, heads, width}, options);
          for (int turn = 0; turn < 2; ++turn) {  // the second time the tokens are in their pages
            REQUIRE(device::module().decoding.attend(step, tickets, out));
            for (int64_t text = 0; text < kTexts; ++text) {
              const auto count = positions[text].item<int64_t>() + 1;
              const auto of_text = [&](const at::Tensor& pool, const at::Tensor& added) {
                at::Tensor whole = pool.index_select(0, table[text]).transpose(0, 1).reshape({kv_heads, -1, width});
                whole = whole.narrow(1, 0, count).to(at::kDouble);
                whole.select(1, count - 1).copy_(added[0].select(1, text));
                return whole.repeat_interleave(heads / kv_heads, 0);
              };
              const at::Tensor one = query[0].select(1, text).to(at::kDouble).unsqueeze(1);
              at::Tensor scores = at::matmul(one, of_text(key_pages, key).transpose(1, 2)) * 0.3;
              if (mask_kind == 1) {
                scores = scores.masked_fill(
                    mask->select(0, 0).select(1, text).narrow(1, 0, count).logical_not().unsqueeze(1), -INFINITY);
              }
              if (mask_kind == 2)
                scores = scores + mask->select(1, text).narrow(1, 0, count).to(at::kDouble).unsqueeze(1);
              const at::Tensor expected = at::matmul(at::softmax(scores, -1), of_text(value_pages, value)).squeeze(1);
              CHECK(difference(out[text], expected) <= (type == at::kFloat ? 1e-5 : bound_of(type)));
            }
          }
          CHECK(tickets.sum().item<int64_t>() == 0);
        }
      }
    }
  }
}

TEST_CASE("kernels that start before the one in front of them has ended compute the same", "[gpu][decoding]") {
  if (!test::has_device()) return;
  at::manual_seed(4);
  constexpr int64_t kHeads = 16, kWidth = 128, kWide = kHeads * kWidth, kPage = KeyCache::kPageTokens;
  const auto options = at::TensorOptions(kGpu).dtype(at::kBFloat16);
  const at::Tensor first = at::randn({1, 2, kWide}, options), none;
  const at::Tensor square = at::randn({kWide, kWide}, options) * 0.02, narrow = at::randn({8, kWide}, options) * 0.02;
  const auto quantized = c10::make_intrusive<QuantizedWeight>(model::WeightType::kInt8);
  quantized->quantize(at::randn({kWide, kWide}, kGpu) * 0.02, at::kBFloat16);
  const at::Tensor key_pages = at::randn({4, kHeads, kPage, kWidth}, options), value_pages = key_pages * 0.5;
  const at::Tensor table = at::arange(4, kGpu).to(at::kInt).view({2, 2}),
                   positions = at::tensor({int64_t{70}, int64_t{127}}).to(kGpu);
  const at::Tensor tickets = at::zeros({1 << 10}, at::TensorOptions(kGpu).dtype(at::kInt));
  const auto run = [&] {
    at::Tensor value = first;
    for (int i = 0; i < 30; ++i) {
      value = linears_of_rows(value, {square, narrow}, {none, none})[0];
      value = quantized_linears_of_rows(value, {quantized}, {none})[0];
      const at::Tensor heads = value.view({1, 2, kHeads, kWidth}).transpose(1, 2);
      StepAttention step{heads, heads, heads, key_pages, value_pages, table, positions, {}, 0.1};
      step.overlaps = device::overlaps_launches();
      const at::Tensor out = at::empty({2, kHeads, kWidth}, options);
      REQUIRE(device::module().decoding.attend(step, tickets, out));
      value = out.view({1, 2, kWide});
    }
    return value;
  };
  run();  // the keys are in their pages, and the module is loaded
  const at::Tensor expected = run().cpu();
  const device::LaunchOverlap overlap;
  for (int turn = 0; turn < 5; ++turn) CHECK(at::equal(run().cpu(), expected));
}
