// Casts to fp8 and GEMMs of fp8 matrices against their definition in double.
#include "runtime/device/fp8.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <tuple>

#include "runtime/device/fp8_maxima.hpp"

using namespace dslaunch::runtime::device;

namespace {

at::Tensor random_matrix(int64_t rows, int64_t columns, double size = 1) {
  return (at::randn({rows, columns}) * size * at::randn({rows, 1}).exp()).to(at::kBFloat16);
}

// The nearest number with so many bits of mantissa, ties to even; no exponent is lower than `lowest`.
double nearest(double value, int mantissa, int lowest) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), lowest);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  return std::nearbyint(value / unit) * unit;
}

double scale_for(double largest, const Fp8Cast& cast) {
  const double limit = cast.type == at::kFloat8_e5m2 ? 57344 : 448;
  const auto scale = static_cast<float>(limit / std::max(largest, 1e-12));
  return cast.power_of_two ? std::ldexp(1.0, std::ilogb(scale)) : scale;
}

// What the matrix stands for, by the definition: each value times its scale, rounded, over the scale.
void check_cast(const at::Tensor& matrix, const Fp8Matrix& stored, Fp8Scale scale, const Fp8Cast& cast) {
  const bool is_e5m2 = cast.type == at::kFloat8_e5m2;
  CHECK(stored.values.scalar_type() == cast.type);
  const at::Tensor wanted = matrix.to(at::kDouble).contiguous(), values = stored.values.to(at::kDouble);
  const at::Tensor inverse = stored.inverse_scales.expand({matrix.size(0), 1}).to(at::kDouble).contiguous();
  int different = 0;
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    const at::Tensor whole = scale == Fp8Scale::kOfRow ? wanted[row] : wanted;
    const double factor = scale_for(whole.abs().max().item<double>(), cast);
    different += inverse[row].item<double>() != static_cast<double>(1.0F / static_cast<float>(factor));
    for (int64_t column = 0; column < matrix.size(1); ++column) {
      const auto scaled = static_cast<float>(wanted[row][column].item<double>()) * static_cast<float>(factor);
      const double expected = is_e5m2 ? nearest(scaled, 2, -14) : nearest(scaled, 3, -6);
      different += values[row][column].item<double>() != expected;
    }
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("a matrix is rounded to fp8 after its scales, in both orders", "[device][fp8]") {
  at::manual_seed(3);
  const at::Tensor matrix = random_matrix(5, 16);
  for (const auto type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    for (const auto scale : {Fp8Scale::kOfTensor, Fp8Scale::kOfRow}) {
      const Fp8Cast cast{type, scale, scale, scale == Fp8Scale::kOfRow};
      const auto [plain, transposed] = to_fp8(matrix, cast);
      check_cast(matrix, plain, scale, cast);
      check_cast(matrix.t(), transposed, scale, cast);
      CHECK(to_fp8(matrix, {.type = type, .plain = scale}).transposed.values.defined() == false);
    }
  }
}

TEST_CASE("zeros stay zeros in fp8, and what is not finite stays visible", "[device][fp8]") {
  const Fp8Cast cast{.plain = Fp8Scale::kOfTensor};
  const auto zeros = to_fp8(at::zeros({2, 16}, at::kBFloat16), cast).plain;
  CHECK(multiply({zeros, zeros}).equal(at::zeros({2, 2}, at::kBFloat16)));
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor matrix = at::ones({2, 16}, at::kBFloat16);
    matrix[1][3] = value;
    const auto stored = to_fp8(matrix, cast).plain;
    CHECK_FALSE(multiply({stored, stored})[1].isfinite().any().item<bool>());
  }
}

TEST_CASE("a noted maximum is that of the values that were noted", "[device][fp8]") {
  const auto note = [](const at::Tensor& tensor) {
    at::Tensor slots = at::zeros({kMaximumSize}, at::kInt);
    note_maximum(tensor, slots);
    return slots;
  };
  at::Tensor matrix = random_matrix(4, 16);
  const at::Tensor slots = note(matrix);
  CHECK(noted_maximum(matrix).is_same(slots));
  CHECK(noted_maximum(matrix.view({8, 8})).is_same(slots));
  CHECK(noted_maximum(matrix.t()).is_same(slots));
  CHECK_FALSE(noted_maximum(matrix[1]).defined());
  CHECK_FALSE(noted_maximum(matrix.narrow(0, 1, 3)).defined());
  CHECK_FALSE(noted_maximum(matrix.clone()).defined());
  matrix.view({64}).add_(1);
  CHECK_FALSE(noted_maximum(matrix).defined());
  const at::Tensor again = note(matrix);
  CHECK(noted_maximum(matrix).is_same(again));
  const at::Tensor strided = random_matrix(4, 32).narrow(1, 0, 16);
  note(strided);
  CHECK_FALSE(noted_maximum(strided).defined());
  for (int i = 0; i < 1000; ++i) note(random_matrix(1, 16));  // whose memory is gone
  CHECK(noted_maximum(matrix).is_same(again));
}

TEST_CASE("GEMMs in fp8 are sums of what their factors stand for, rounded once", "[device][fp8]") {
  at::manual_seed(4);
  const at::Tensor a = random_matrix(6, 32), b = random_matrix(16, 32, 0.1), bias = random_matrix(1, 16)[0];
  for (const auto& [left_scale, right_scale] :
       {std::pair(Fp8Scale::kOfTensor, Fp8Scale::kOfTensor), std::pair(Fp8Scale::kOfRow, Fp8Scale::kOfRow),
        std::pair(Fp8Scale::kOfRow, Fp8Scale::kOfTensor)}) {
    const auto left = to_fp8(a, {.plain = left_scale}).plain, right = to_fp8(b, {.plain = right_scale}).plain;
    const auto exact_of = [](const Fp8Matrix& matrix) {
      return matrix.values.to(at::kDouble) * matrix.inverse_scales.to(at::kDouble);
    };
    const at::Tensor exact = exact_of(left).mm(exact_of(right).t());
    const auto is_near = [](const at::Tensor& got, const at::Tensor& wanted, double bound) {
      return ((got.to(at::kDouble) - wanted).abs() <= bound * wanted.abs().max()).all().item<bool>();
    };
    CHECK(is_near(multiply({left, right}), exact, 1.0 / 256));
    CHECK(is_near(multiply({left, right, bias}), exact + bias.to(at::kDouble), 1.0 / 256));
    for (const auto type : {at::kBFloat16, at::kFloat}) {
      at::Tensor sum = at::ones({6, 16}, type);
      multiply({left, right}, sum, /*adds=*/false);
      CHECK(sum.equal(multiply({left, right}).to(type)));
      multiply({left, right}, sum, /*adds=*/true);
      CHECK(is_near(sum, 2 * exact, 1.0 / 128));
    }
  }
}
