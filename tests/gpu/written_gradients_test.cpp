// Weight gradients that a backward on a GPU writes where they are summed, against fp64 and beside those that are copied
// there. Without a CUDA device they are skipped.
#include "support/written_gradients.hpp"

#include <catch2/catch.hpp>

#include "runtime/model/torchscript/units/weight_gemm.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::units;
using test::WrittenGradientsCase;

namespace {

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return ((a.to(at::kCPU, at::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

}  // namespace

TEST_CASE("a GEMM is added to what a sum on the device has, in the sum's type", "[gpu][written]") {
  if (!test::has_device()) return;
  at::manual_seed(2);
  const auto [factors, sum_type] = GENERATE(std::pair(at::kFloat, at::kFloat), std::pair(at::kBFloat16, at::kBFloat16),
                                            std::pair(at::kHalf, at::kHalf), std::pair(at::kBFloat16, at::kFloat));
  const auto layout = GENERATE(WeightLayout::kOutIn, WeightLayout::kInOut);
  const int64_t rows = GENERATE(1, 3, 384);
  const bool is_empty = GENERATE(true, false);
  INFO(at::toString(factors) << " into " << at::toString(sum_type) << ", " << rows << " rows, empty " << is_empty);
  const at::Tensor input = at::randn({rows, 40}).to(factors), upstream = at::randn({rows, 24}).to(factors);
  const bool is_out_in = layout == WeightLayout::kOutIn;
  const at::Tensor before = at::randn(is_out_in ? at::IntArrayRef({24, 40}) : at::IntArrayRef({40, 24})).to(sum_type);
  at::Tensor exact = is_out_in ? upstream.to(at::kDouble).t().mm(input.to(at::kDouble))
                               : input.to(at::kDouble).t().mm(upstream.to(at::kDouble));
  // With elements before and after it, which stay what they are.
  at::Tensor buffer = at::full({before.numel() + 16}, 3, at::TensorOptions(at::kCUDA).dtype(sum_type));
  at::Tensor sum = buffer.narrow(0, 8, before.numel()).view(before.sizes());
  sum.copy_(is_empty ? at::full_like(before, NAN) : before);
  if (!is_empty) exact = exact + before.to(at::kDouble);
  const WeightGemm gemm(input.to(at::kCUDA), upstream.to(at::kCUDA), layout);
  gemm.add_to({sum, is_empty});
  const double bound = sum_type == at::kFloat ? 2e-6 : sum_type == at::kHalf ? 5e-4 : 4e-3;
  CHECK(distance(sum, exact) < bound);
  CHECK(buffer.narrow(0, 0, 8).eq(3).all().item<bool>());
  CHECK(buffer.narrow(0, 8 + before.numel(), 8).eq(3).all().item<bool>());
}

TEST_CASE("weight gradients on a device are written into their buffers at every stage", "[gpu][written]") {
  if (!test::has_device()) return;
  const int stage = GENERATE(0, 1, 2, 3);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto accumulation_dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t micro_batches = GENERATE(1, 3);
  WrittenGradientsCase c{.stage = stage,
                         .dtype = dtype,
                         .device = at::Device(at::kCUDA, 0),
                         .micro_batches = micro_batches,
                         .accumulation_dtype = accumulation_dtype};
  INFO("stage " << stage << ", " << at::toString(dtype) << " accumulated in " << at::toString(accumulation_dtype)
                << ", micro batches " << micro_batches);
  const auto written = test::step_gradients(c);
  c.writes = false;
  const auto copied = test::step_gradients(c);
  const auto exact = test::exact_gradients(c);
  for (size_t i = 0; i < exact.of_parameters.size(); ++i) {
    INFO("parameter " << i);
    const double plain = distance(copied.of_parameters[i], exact.of_parameters[i]);
    CHECK(distance(written.of_parameters[i], exact.of_parameters[i]) <= std::max(2e-6, 1.25 * plain));
  }
  const int64_t weights = 2 * test::kBlockIn * test::kBlockHidden, others = test::kBlockIn + test::kBlockHidden;
  CHECK(copied.num_copied == micro_batches * (weights + others));
  const bool is_sum_fp32 = accumulation_dtype == at::kFloat;
  const bool has_type =
      stage >= 2 || accumulation_dtype == dtype || (is_sum_fp32 && (micro_batches == 1 || dtype == at::kBFloat16));
  CHECK(written.num_copied == micro_batches * ((has_type ? 0 : weights) + others));
}
