// The CUDA module's table for lib/runtime/sharding: extracts pointers and sizes from tensors and launches the kernels.
// Part of the module, never of dsworker itself.
#include "runtime/sharding/codec_functions.hpp"

#include <c10/cuda/CUDAGuard.h>

#include "kernels/block_codes.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"

namespace dslaunch::runtime {
namespace {

kernels::BlockCodes parts_of(const at::Tensor& wire, int64_t numel, WireFormat format) {
  const int64_t num_blocks = (numel + format.block - 1) / format.block;
  auto* bytes = static_cast<uint8_t*>(wire.mutable_data_ptr());
  return {reinterpret_cast<float*>(bytes), bytes + num_blocks * static_cast<int64_t>(sizeof(float)), format.bits,
          static_cast<int>(format.block)};
}

void quantize_on_device(const at::Tensor& values, WireFormat format, const at::Tensor& wire, const Feedback* feedback) {
  const c10::cuda::CUDAGuard guard(values.device());
  kernels::QuantizeArguments arguments;
  arguments.values = values.const_data_ptr();
  arguments.type = element_type(values.scalar_type());
  arguments.count = static_cast<size_t>(values.numel());
  if (feedback != nullptr) {
    arguments.error = feedback->error.mutable_data_ptr<float>();
    arguments.error_beta = static_cast<float>(feedback->beta);
  }
  arguments.to = parts_of(wire, values.numel(), format);
  check_launch(kernels::launch_quantize(arguments, stream_of(values)), "quantize", values);
}

void dequantize_on_device(const at::Tensor& wire, WireFormat format, const at::Tensor& out, bool add) {
  const c10::cuda::CUDAGuard guard(out.device());
  kernels::DequantizeArguments arguments;
  arguments.from = parts_of(wire, out.numel(), format);
  arguments.out = out.mutable_data_ptr();
  arguments.type = element_type(out.scalar_type());
  arguments.count = static_cast<size_t>(out.numel());
  arguments.add = add;
  check_launch(kernels::launch_dequantize(arguments, stream_of(out)), "dequantize", out);
}

}  // namespace

const CodecFunctions kCodecFunctions{quantize_on_device, dequantize_on_device};

}  // namespace dslaunch::runtime
