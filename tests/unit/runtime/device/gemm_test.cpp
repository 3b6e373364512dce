#include "runtime/device/gemm.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime::device;

TEST_CASE("GEMMs on the CPU are PyTorch's", "[runtime][device]") {
  at::manual_seed(1);
  const auto cache = c10::make_intrusive<GemmCache>("");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor left = at::randn({6, 40}).to(type), right = at::randn({24, 40}).to(type).t();
    const at::Tensor bias = at::randn({24}).to(type);
    CHECK_FALSE(is_tunable({left, right}));
    at::Tensor out = at::empty({6, 24}, type);
    multiply({left, right}, out, cache);
    CHECK(at::equal(out, left.mm(right)));
    multiply({left, right}, out, cache, /*adds=*/true);
    CHECK(at::equal(out, left.mm(right) + left.mm(right)));
    multiply({left, right, bias}, out, cache);
    CHECK(at::equal(out, at::addmm(bias, left, right)));
  }
  CHECK(cache->counts().measured == 0);
}

TEST_CASE("GEMMs have the same bits wherever the result lies in a flat buffer", "[runtime][device]") {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor left = at::randn({36, 7}).to(type).t(), right = at::randn({36, 7}).to(type);
    for (int64_t offset = 0; offset < 8; ++offset) {
      const at::Tensor flat = at::empty({offset + 49}, type);
      multiply({left, right}, flat.narrow(0, offset, 49).view({7, 7}), /*cache=*/{});
      INFO(type << " at " << offset);
      CHECK(at::equal(flat.narrow(0, offset, 49).view({7, 7}), left.mm(right)));
    }
  }
}

TEST_CASE("sums in fp32 have GEMMs of 16 bits unrounded", "[runtime][device]") {
  at::manual_seed(2);
  const at::Tensor left = at::randn({6, 40}).to(at::kBFloat16), right = at::randn({40, 24}).to(at::kBFloat16);
  const at::Tensor exact = left.to(at::kFloat).mm(right.to(at::kFloat));
  at::Tensor sum = at::empty({6, 24});
  multiply({left, right}, sum, /*cache=*/{});
  CHECK(at::equal(sum, exact));
  multiply({left, right}, sum, /*cache=*/{}, /*adds=*/true);
  CHECK(at::equal(sum, exact + exact));
}
