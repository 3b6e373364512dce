#include "runtime/optim/gradient_norm.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"

namespace {

using dslaunch::runtime::optim::clip_by_norm;
using dslaunch::runtime::optim::sum_of_squares;

at::Tensor normal(int64_t count, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({count}, at::kFloat);
}

double oracle(const at::Tensor& values) {
  return values.to(at::kDouble).square().sum().item<double>();
}

struct ThreadCountGuard {
  int before = at::get_num_threads();
  ~ThreadCountGuard() { at::set_num_threads(before); }
};

}  // namespace

TEST_CASE("the sum of squares is that of double precision at awkward sizes", "[runtime][gradient_norm]") {
  for (const int64_t count : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 8191, 8192, 8193, 100'003, (1 << 20) + 5}) {
    INFO(count);
    const at::Tensor values = normal(count, 7);
    const at::Tensor sum = sum_of_squares(values);
    CHECK(sum.dim() == 0);
    CHECK(sum.scalar_type() == at::kDouble);
    CHECK(sum.item<double>() == Approx(oracle(values)).epsilon(1e-13));
  }
}

TEST_CASE("squares of 16-bit values are those of the same values in fp32", "[runtime][gradient_norm]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {0, 1, 17, 8193, (1 << 20) + 5}) {
      INFO(type << ", " << count);
      const at::Tensor values = normal(count, 7).to(type);
      CHECK(sum_of_squares(values).item<double>() == sum_of_squares(values.to(at::kFloat)).item<double>());
    }
  }
}

TEST_CASE("squares beyond fp32 do not overflow", "[runtime][gradient_norm]") {
  CHECK(sum_of_squares(at::full({40}, 1e30F)).item<double>() == Approx(40 * 1e60).epsilon(1e-6));
  CHECK(sum_of_squares(at::full({40}, 1e-30F)).item<double>() == Approx(40 * 1e-60).epsilon(1e-6));
}

TEST_CASE("the sum of squares is the same bit by bit for any number of threads", "[runtime][gradient_norm]") {
  const ThreadCountGuard guard;
  const at::Tensor values = normal((1 << 20) + 4321, 8);
  at::set_num_threads(1);
  const auto expected = sum_of_squares(values).item<double>();
  for (const int threads : {2, 3, 5, 8}) {
    at::set_num_threads(threads);
    CHECK(sum_of_squares(values).item<double>() == expected);
  }
}

TEST_CASE("several tensors add up to one sum", "[runtime][gradient_norm]") {
  const std::vector<at::Tensor> parts = {normal(10'000, 1), normal(0, 2), normal(3, 3), normal(70'001, 4)};
  CHECK(sum_of_squares(parts).item<double>() == Approx(oracle(at::cat(parts))).epsilon(1e-13));
}

TEST_CASE("a gradient longer than the limit is divided by DeepSpeed's ratio", "[runtime][gradient_norm]") {
  const auto clipped = clip_by_norm(at::scalar_tensor(25.0, at::kDouble), 2.0);
  CHECK(clipped.norm.item<double>() == 5.0);
  CHECK(clipped.factor.item<float>() == static_cast<float>(2.0 / (5.0 + 1e-6)));
  CHECK(clipped.factor.scalar_type() == at::kFloat);
  CHECK(clipped.factor.dim() == 0);
}

TEST_CASE("a gradient within the limit, or without one, is only scaled", "[runtime][gradient_norm]") {
  CHECK(clip_by_norm(at::scalar_tensor(25.0, at::kDouble), 6.0).factor.item<float>() == 1.0F);
  CHECK(clip_by_norm(at::scalar_tensor(25.0, at::kDouble), 0.0).factor.item<float>() == 1.0F);
  const auto scaled = clip_by_norm(at::scalar_tensor(100.0, at::kDouble), 6.0, 0.5);
  CHECK(scaled.norm.item<double>() == 5.0);
  CHECK(scaled.factor.item<float>() == 0.5F);
}

TEST_CASE("the limit applies to the scaled gradient", "[runtime][gradient_norm]") {
  const auto clipped = clip_by_norm(at::scalar_tensor(1600.0, at::kDouble), 2.0, 0.25);
  CHECK(clipped.norm.item<double>() == 10.0);
  CHECK(clipped.factor.item<float>() == static_cast<float>(0.25 * 2.0 / (10.0 + 1e-6)));
}

TEST_CASE("a norm that is not finite is reported as it is", "[runtime][gradient_norm]") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(clip_by_norm(at::scalar_tensor(infinity, at::kDouble), 1.0).norm.item<double>() == infinity);
  at::Tensor values = at::zeros({20'000}, at::kFloat);
  values[12'345] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(sum_of_squares(values).item<double>()));
  CHECK(std::isnan(clip_by_norm(sum_of_squares(values), 1.0).norm.item<double>()));
}

TEST_CASE("a norm over tensors of another type is refused", "[runtime][gradient_norm]") {
  CHECK_THROWS_AS(sum_of_squares(at::zeros({4}, at::kDouble)), dslaunch::InternalError);
  CHECK_THROWS_AS(sum_of_squares(at::TensorList{}), dslaunch::InternalError);
}
