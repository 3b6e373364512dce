#include "runtime/device/gemm.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "runtime/device/device_module.hpp"
#include "runtime/device/gemm_functions.hpp"
#include "runtime/generated_kernels/kernel_files.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::device;

namespace {

double distance(const at::Tensor& a, const at::Tensor& exact) {
  return (a.to(at::kDouble) - exact).norm().item<double>() / exact.norm().item<double>();
}

// Row-major or, transposed, column-major.
at::Tensor matrix(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  const auto options = at::TensorOptions(at::kCUDA);
  return is_transposed ? at::randn({columns, rows}, options).to(type).t()
                       : at::randn({rows, columns}, options).to(type);
}

// With the choices of earlier processes.
GemmCachePtr user_cache() {
  return c10::make_intrusive<GemmCache>(runtime::generated_kernels::kernel_directory());
}

int num_choices(const GemmCache& cache) {
  return cache.counts().measured + cache.counts().read;
}

}  // namespace

TEST_CASE("every algorithm of cuBLASLt computes the GEMM", "[gpu][gemm]") {
  if (!test::has_device()) return;
  const auto& functions = module().gemm;
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  const bool is_left_transposed = GENERATE(false, true), is_right_transposed = GENERATE(false, true);
  // The second one has few tiles and a long sum, for which split-K algorithms are proposed.
  const int64_t rows = GENERATE(2080, 264), inner = rows == 264 ? 20'808 : 1552, columns = rows == 264 ? 392 : 2056;
  const at::Tensor left = matrix(rows, inner, is_left_transposed, type),
                   right = matrix(inner, columns, is_right_transposed, type);
  const at::Tensor bias = at::randn({columns}, at::kCUDA).to(type);
  const at::Tensor exact = left.to(at::kDouble).mm(right.to(at::kDouble));
  const auto check = [&](const GemmProblem& gemm, at::ScalarType out_type, bool adds) {
    at::Tensor out = at::empty({rows, columns}, left.options().dtype(out_type));
    const at::Tensor expected = adds || gemm.bias ? exact + bias : exact;
    // Without split-K cuBLASLt rounds the GEMM before it adds the sum that is there.
    const at::Tensor rounded = adds ? exact.to(out_type).to(at::kDouble) + bias : expected;
    // Tensor cores truncate where they add in fp32: after each 16 terms half a unit in the last place, on average,
    // of a sum that is two thirds of the last one on average.
    const double truncated = static_cast<double>(inner) / 16 * 0x1p-24 * 2 / 3;
    const double bound = 1.02 * distance(rounded.to(out_type), expected) + 2e-6 + truncated;
    int num_run = 0;
    for (const auto& algorithm : functions.algorithms(gemm, out)) {
      INFO(type << " to " << out_type << ", rows " << rows << ", transposed " << is_left_transposed << " "
                << is_right_transposed << ", bias " << gemm.bias.has_value() << ", adds " << adds << ", algorithm "
                << to_text(algorithm));
      adds ? out.copy_(bias.expand_as(out)) : out.fill_(NAN);
      if (!functions.run(gemm, out, adds, algorithm)) continue;
      num_run += 1;
      CHECK(distance(out, expected) <= bound);
    }
    CHECK(num_run >= 2);
  };
  for (const auto out_type : {type, at::kFloat}) {
    check({left, right}, out_type, /*adds=*/false);
    check({left, right}, out_type, /*adds=*/true);
  }
  check({left, right, bias}, type, /*adds=*/false);
}

TEST_CASE("a GEMM with a measured algorithm is as exact as PyTorch's", "[gpu][gemm]") {
  if (!test::has_device()) return;
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  const bool is_left_transposed = GENERATE(false, true), is_right_transposed = GENERATE(false, true);
  INFO(type << ", transposed " << is_left_transposed << " " << is_right_transposed);
  const at::Tensor left = matrix(2080, 1552, is_left_transposed, type),
                   right = matrix(1552, 2056, is_right_transposed, type);
  const at::Tensor bias = at::randn({2056}, at::kCUDA).to(type);
  const at::Tensor exact = left.to(at::kDouble).mm(right.to(at::kDouble));
  REQUIRE(is_tunable({left, right}));
  const auto cache = user_cache();
  at::Tensor out = at::full({2080, 2056}, NAN, left.options());
  multiply({left, right}, out, cache);
  CHECK(distance(out, exact) <= 1.1 * distance(left.mm(right), exact));
  multiply({left, right, bias}, out, cache);
  CHECK(distance(out, exact + bias) <= 1.1 * distance(at::addmm(bias, left, right), exact + bias));
  at::Tensor of_pytorch = bias.expand_as(out).contiguous();
  out.copy_(of_pytorch);
  multiply({left, right}, out, cache, /*adds=*/true);
  at::addmm_out(of_pytorch, of_pytorch, left, right);
  CHECK(distance(out, exact + bias) <= 1.1 * distance(of_pytorch, exact + bias));
  if (type == at::kBFloat16) {
    at::Tensor sum = at::full({2080, 2056}, NAN, left.options().dtype(at::kFloat));
    multiply({left, right}, sum, cache);
    CHECK(distance(sum, exact) < 2e-6);
    multiply({left, right}, sum, cache, /*adds=*/true);
    CHECK(distance(sum, 2 * exact) < 2e-6);
  }
  const int expected = type == at::kBFloat16 ? 3 : 2;
  CHECK(num_choices(*cache) == expected);
  multiply({left, right, bias}, out, cache);  // known by now
  CHECK(num_choices(*cache) == expected);
}

TEST_CASE("GEMMs that cuBLASLt's fast kernels do not take are PyTorch's", "[gpu][gemm]") {
  if (!test::has_device()) return;
  const auto cache = user_cache();
  const auto type = at::kBFloat16;
  CHECK_FALSE(is_tunable({matrix(64, 64, false, type), matrix(64, 64, false, type)}));        // too small
  CHECK_FALSE(is_tunable({matrix(2080, 777, false, type), matrix(777, 2056, false, type)}));  // rows of odd bytes
  CHECK_FALSE(is_tunable({matrix(2080, 1552, false, at::kFloat), matrix(1552, 2056, false, at::kFloat)}));
  const at::Tensor wide = matrix(2080, 1560, false, type), right = matrix(1552, 2056, false, type);
  CHECK(is_tunable({wide.narrow(1, 8, 1552), right}));
  CHECK_FALSE(is_tunable({wide.narrow(1, 4, 1552), right}));  // begins at 8 bytes
  at::Tensor out = at::empty({2080, 2056}, wide.options());
  multiply({wide.narrow(1, 8, 1552), right}, out, cache);
  const at::Tensor exact = wide.narrow(1, 8, 1552).to(at::kDouble).mm(right.to(at::kDouble));
  CHECK(distance(out, exact) <= 1.1 * distance(wide.narrow(1, 8, 1552).mm(right), exact));
}

TEST_CASE("GEMMs without a cache, and those of another one, leave it alone", "[gpu][gemm]") {
  if (!test::has_device()) return;
  const at::Tensor left = matrix(2080, 1552, false, at::kBFloat16), right = matrix(1552, 2056, false, at::kBFloat16);
  const auto used = c10::make_intrusive<GemmCache>(""), unused = c10::make_intrusive<GemmCache>("");
  at::Tensor out = at::empty({2080, 2056}, left.options());
  multiply({left, right}, out, used);
  CHECK(used->counts().measured == 1);
  multiply({left, right}, out, /*cache=*/{});
  CHECK(out.equal(left.mm(right)));  // PyTorch's bits
  CHECK(used->counts().measured == 1);
  CHECK(unused->counts().measured == 0);
}
