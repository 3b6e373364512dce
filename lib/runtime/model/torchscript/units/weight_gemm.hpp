// The GEMM that is the gradient of a layer's weight: computed into a new tensor, or into the buffer in
// which the gradient is summed. Any thread, on its current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/device/fp8.hpp"
#include "runtime/device/gemm.hpp"
#include "runtime/state/gradient_destination.hpp"

namespace dslaunch::runtime::model::units {

enum class WeightLayout : uint8_t { kOutIn, kInOut };  // of at::linear; of at::matmul and at::addmm

// Two dims, however many `tensor` has.
at::Tensor as_rows(const at::Tensor& tensor);

class WeightGemm {
 public:
  // `input`: of the layer, [..., in]. `upstream`: the gradient of its output, [rows, out], of the same type. `gemms`:
  // null: PyTorch's algorithm.
  WeightGemm(at::Tensor input, at::Tensor upstream, WeightLayout layout, device::GemmCachePtr gemms = {})
      : input_(std::move(input)), upstream_(std::move(upstream)), layout_(layout), gemms_(std::move(gemms)) {}

  // Of a layer in bf16 whose GEMMs compute in fp8: both transposed, [in, rows] and [out, rows].
  WeightGemm(device::Fp8Matrix input, device::Fp8Matrix upstream, WeightLayout layout, device::GemmCachePtr gemms)
      : layout_(layout),
        gemms_(std::move(gemms)),
        in_fp8_(in_layout({std::move(input), std::move(upstream)}, layout)) {}

  at::ScalarType factors() const { return in_fp8_ ? at::kBFloat16 : upstream_.scalar_type(); }
  // As autograd computes it for PyTorch's operators, so on the CPU the same bits.
  at::Tensor compute() const;
  // Into an empty destination of the same type the same bits as compute(). On GPUs a sum is rounded once, with the
  // GEMM; on the CPU the GEMM is computed first.
  void add_to(const GradientDestination& destination) const;
  // The same without the history of the input, which would keep the graph before it alive.
  WeightGemm detached() const;

 private:
  std::pair<at::Tensor, at::Tensor> matrices() const;
  static device::Fp8Gemm in_layout(device::Fp8Gemm input_and_upstream, WeightLayout layout);

  at::Tensor input_, upstream_;  // undefined in fp8
  WeightLayout layout_;
  device::GemmCachePtr gemms_;
  std::optional<device::Fp8Gemm> in_fp8_;
};

}  // namespace dslaunch::runtime::model::units
