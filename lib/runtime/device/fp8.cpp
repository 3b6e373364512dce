#include "runtime/device/fp8.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/device/fp8_functions.hpp"
#include "runtime/device/fp8_maxima.hpp"

namespace dslaunch::runtime::device {
namespace {

constexpr int kLeastCapability = 89;        // 8.9
constexpr double kSmallestMaximum = 1e-12;  // of a tensor of zeros, as torchao has it
constexpr size_t kAlignment = 16;           // of a matrix that a kernel reads, in bytes

double largest(at::ScalarType type) {
  return type == at::kFloat8_e5m2 ? 57344.0 : 448.0;
}

// fp32, from maxima in bf16.
at::Tensor scales_of(const at::Tensor& maxima, const Fp8Cast& cast) {
  constexpr int32_t kExponent = 0x7f800000;  // the bits of a power of two
  const at::Tensor divisors = maxima.to(at::kDouble).clamp_min(kSmallestMaximum);
  const at::Tensor scales = at::full_like(divisors, largest(cast.type)).div_(divisors).to(at::kFloat);
  return cast.power_of_two ? scales.view(at::kInt).bitwise_and(kExponent).view(at::kFloat) : scales;
}

Fp8Matrix rounded(const at::Tensor& matrix, Fp8Scale scale, const Fp8Cast& cast) {
  const at::Tensor sizes = matrix.abs();
  const at::Tensor maxima = scale == Fp8Scale::kOfRow ? sizes.amax({1}, /*keepdim=*/true) : sizes.max().view({1, 1});
  const at::Tensor scales = scales_of(maxima, cast);
  const double limit = largest(cast.type);
  return {matrix.to(at::kFloat).mul(scales).clamp(-limit, limit).to(cast.type).contiguous(), scales.reciprocal()};
}

bool has_row_scales(const Fp8Cast& cast) {
  return cast.plain == Fp8Scale::kOfRow || cast.transposed == Fp8Scale::kOfRow;
}

// A transposed matrix is read as it lies in memory.
Fp8Pair cast_on_gpu(const at::Tensor& matrix, Fp8Cast cast) {
  const bool is_transposed = !matrix.is_contiguous() && matrix.t().is_contiguous();
  at::Tensor read = is_transposed ? matrix.t() : matrix.contiguous();
  if (reinterpret_cast<uintptr_t>(read.const_data_ptr()) % kAlignment != 0) read = read.clone();
  if (is_transposed) std::swap(cast.plain, cast.transposed);
  Fp8Pair out = module().fp8.cast(read, cast, has_row_scales(cast) ? at::Tensor() : noted_maximum(matrix));
  if (is_transposed) std::swap(out.plain, out.transposed);
  return out;
}

at::Tensor emulated(const Fp8Gemm& gemm) {
  const auto& [left, right, bias, fast] = gemm;
  at::Tensor out = left.values.to(at::kFloat).mm(right.values.to(at::kFloat).t());
  out.mul_(left.inverse_scales).mul_(right.inverse_scales.t());
  return bias ? out.add_(bias->to(at::kFloat)) : out;
}

bool has_one_scale(const Fp8Matrix& factor) {
  return factor.inverse_scales.numel() == 1;
}

// As PyTorch's operator takes them for rows: contiguous, for all of them.
at::Tensor of_rows(const Fp8Matrix& factor) {
  return factor.inverse_scales.expand({factor.values.size(0), 1}).contiguous();
}

// By PyTorch's operator, into bf16.
void multiply_rows(const Fp8Gemm& gemm, at::Tensor& out) {
  at::_scaled_mm_out(out, gemm.left.values, gemm.right.values.t(), of_rows(gemm.left), of_rows(gemm.right).t(),
                     gemm.bias, /*scale_result=*/{}, out.scalar_type(), gemm.fast);
}

}  // namespace

void require_fp8(at::Device device) {
  if (!device.is_cuda()) return;
  const int capability = module().fp8.compute_capability(device);
  if (capability >= kLeastCapability) return;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("fp8.enabled: {} has compute capability {}.{}; GPUs multiply in fp8 from 8.9 on; set "
                              "fp8.enabled to false",
                              device.str(), capability / 10, capability % 10));
}

Fp8Pair to_fp8(const at::Tensor& matrix, const Fp8Cast& cast) {
  const at::NoGradGuard no_grad;
  if (!cast.plain && !cast.transposed) return {};
  if (matrix.is_cuda()) return cast_on_gpu(matrix, cast);
  Fp8Pair out;
  if (cast.plain) out.plain = rounded(matrix, *cast.plain, cast);
  if (cast.transposed) out.transposed = rounded(matrix.t(), *cast.transposed, cast);
  return out;
}

at::Tensor multiply(const Fp8Gemm& gemm, const GemmCachePtr& cache) {
  const at::NoGradGuard no_grad;
  if (!gemm.left.values.is_cuda()) return emulated(gemm).to(at::kBFloat16);
  at::Tensor out =
      at::empty({gemm.left.values.size(0), gemm.right.values.size(0)}, gemm.left.values.options().dtype(at::kBFloat16));
  multiply(gemm, out, /*adds=*/false, cache);
  return out;
}

void multiply(const Fp8Gemm& gemm, at::Tensor out, bool adds, const GemmCachePtr& cache) {
  const at::NoGradGuard no_grad;
  const auto& [left, right, bias, fast] = gemm;
  if (out.is_cuda() && has_one_scale(left) && has_one_scale(right)) {
    const Fp8Factors factors{left.inverse_scales, right.inverse_scales, fast};
    return multiply({left.values, right.values.t(), bias, factors}, out, cache, adds);
  }
  if (out.is_cuda() && !adds && out.scalar_type() == at::kBFloat16) return multiply_rows(gemm, out);
  const at::Tensor computed = multiply(gemm, cache);
  adds ? out.add_(computed) : out.copy_(computed);
}

}  // namespace dslaunch::runtime::device
