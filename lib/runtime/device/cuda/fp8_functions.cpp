// Matrices in fp8 by our kernels. Part of the CUDA module.
#include "runtime/device/fp8_functions.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>

#include "kernels/fp8_cast.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"
#include "runtime/device/fp8_maxima.hpp"

namespace dslaunch::runtime::device {
namespace {

constexpr int64_t kAlignment = 16;  // of the dim that a GEMM sums over

int compute_capability(at::Device device) {
  int major = 0, minor = 0;
  comm::check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()),
                   "ask a device for its compute capability");
  comm::check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()),
                   "ask a device for its compute capability");
  return 10 * major + minor;
}

Fp8Matrix allocate(const at::Tensor& like, int64_t rows, int64_t columns, Fp8Scale scale, at::ScalarType type) {
  const int64_t stored = (columns + kAlignment - 1) / kAlignment * kAlignment;
  return {at::empty({rows, stored}, like.options().dtype(type)),
          at::empty({scale == Fp8Scale::kOfRow ? rows : 1, 1}, like.options().dtype(at::kFloat))};
}

kernels::Fp8Output output_of(const Fp8Matrix& matrix, Fp8Scale scale) {
  return {matrix.values.mutable_data_ptr(), scale == Fp8Scale::kOfRow, matrix.inverse_scales.mutable_data_ptr<float>()};
}

static_assert(kMaximumSlots == kernels::kFp8MaximumSlots && kSlotStride == kernels::kFp8SlotStride);

Fp8Pair cast_on_device(const at::Tensor& matrix, const Fp8Cast& cast, const at::Tensor& maximum) {
  const c10::cuda::CUDAGuard guard(matrix.device());
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  kernels::Fp8CastArguments arguments;
  arguments.matrix = matrix.const_data_ptr();
  arguments.rows = static_cast<size_t>(rows);
  arguments.columns = static_cast<size_t>(columns);
  arguments.is_e5m2 = cast.type == at::kFloat8_e5m2;
  arguments.power_of_two = cast.power_of_two;
  Fp8Pair out;
  if (cast.plain) {
    out.plain = allocate(matrix, rows, columns, *cast.plain, cast.type);
    arguments.plain = output_of(out.plain, *cast.plain);
  }
  if (cast.transposed) {
    out.transposed = allocate(matrix, columns, rows, *cast.transposed, cast.type);
    arguments.transposed = output_of(out.transposed, *cast.transposed);
    arguments.stride = static_cast<size_t>(out.transposed.values.size(1));
  }
  if (maximum.defined()) {
    arguments.noted = reinterpret_cast<const uint32_t*>(maximum.const_data_ptr<int32_t>());
    check_launch(kernels::launch_fp8_cast(arguments, stream_of(matrix)), "cast to fp8", matrix);
    return out;
  }
  const auto num_maxima = static_cast<int64_t>(kernels::num_fp8_maxima(arguments.rows, arguments.columns));
  const at::Tensor maxima = at::zeros({num_maxima}, matrix.options().dtype(at::kInt));
  arguments.maxima = reinterpret_cast<uint32_t*>(maxima.mutable_data_ptr<int32_t>());
  check_launch(kernels::launch_fp8_cast(arguments, stream_of(matrix)), "cast to fp8", matrix);
  return out;
}

}  // namespace

const Fp8Functions kFp8Functions{.compute_capability = compute_capability, .cast = cast_on_device};

}  // namespace dslaunch::runtime::device
