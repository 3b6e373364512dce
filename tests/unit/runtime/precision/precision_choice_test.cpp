#include "runtime/precision/precision_choice.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/precision/autocast_scope.hpp"

namespace {

using dslaunch::config::Precision;
using namespace dslaunch::runtime::precision;

const std::vector<std::string> kBuffers{"norm.running_mean",  "norm.running_var", "norm.num_batches_tracked",
                                        "other.running_mean", "positions",        "running_mean",
                                        "running_var"};

ModelDtypes dtypes(Precision precision, bool keep_batch_norm = true) {
  return {choose_precision(precision, keep_batch_norm, at::kCPU), kBuffers};
}

}  // namespace

TEST_CASE("auto is bf16 on a GPU and fp32 on the host", "[runtime][precision_choice]") {
  CHECK(choose_precision(Precision::kAuto, true, at::kCPU).compute_dtype == at::kFloat);
  CHECK(choose_precision(Precision::kAuto, true, at::kCUDA).compute_dtype == at::kBFloat16);
  CHECK(choose_precision(Precision::kFp16, true, at::kCPU).compute_dtype == at::kHalf);
}

TEST_CASE("fp32 leaves every tensor as the model has it", "[runtime][precision_choice]") {
  for (auto own : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong})
    CHECK(dtypes(Precision::kFp32)("a.weight", own) == own);
}

TEST_CASE("16 bits are for floating tensors outside batch norms", "[runtime][precision_choice]") {
  const auto half = dtypes(Precision::kFp16);
  CHECK(half("layer.weight", at::kFloat) == at::kHalf);
  CHECK(half("layer.weight", at::kBFloat16) == at::kHalf);
  CHECK(half("embedding.positions", at::kFloat) == at::kHalf);
  CHECK(half("table", at::kLong) == at::kLong);
  for (const char* name : {"norm.weight", "norm.bias", "norm.running_mean", "weight", "running_var"})
    CHECK(half(name, at::kFloat) == at::kFloat);
  CHECK(half("norm.weight", at::kBFloat16) == at::kBFloat16);  // the model's own
  CHECK(half("norm.inner.weight", at::kFloat) == at::kHalf);
  CHECK(half("normal.weight", at::kFloat) == at::kHalf);
  CHECK(half("other.running_mean", at::kFloat) == at::kHalf);  // no variance: no batch norm
  CHECK(dtypes(Precision::kBf16)("norm.bias", at::kFloat) == at::kFloat);
}

TEST_CASE("batch norms are cast too when they are not to be kept", "[runtime][precision_choice]") {
  CHECK(dtypes(Precision::kFp16, false)("norm.running_mean", at::kFloat) == at::kHalf);
}

TEST_CASE("under autocast products are computed in the low type, and not behind it", "[runtime][autocast_scope]") {
  const at::Tensor a = at::ones({2, 2}), b = at::ones({2, 2});
  {
    const AutocastScope scope(at::kCPU, at::kHalf);
    CHECK(at::matmul(a, b).scalar_type() == at::kHalf);
    {
      const AutocastScope inner(at::kCPU, at::kBFloat16);
      CHECK(at::matmul(a, b).scalar_type() == at::kBFloat16);
    }
    CHECK(at::matmul(a, b).scalar_type() == at::kHalf);
  }
  CHECK(at::matmul(a, b).scalar_type() == at::kFloat);
  const AutocastScope none(at::kCPU, std::nullopt);
  CHECK(at::matmul(a, b).scalar_type() == at::kFloat);
}
