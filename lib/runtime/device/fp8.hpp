// Matrices in fp8 and their GEMMs. A value is stored times a scale, which brings the largest magnitude of its tensor,
// or of its row, to the largest number of the type. On CPUs the same rounding, with fp32 GEMMs, so that tests and
// CPU ranks need no GPU. Not differentiable. Any thread; work is enqueued on the current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/device/gemm.hpp"

namespace dslaunch::runtime::device {

// Throws UserError(69) for a GPU that does not multiply in fp8.
void require_fp8(at::Device device);

// A factor of a GEMM: its rows are contiguous along the dim that the GEMM sums over.
struct Fp8Matrix {
  at::Tensor values;          // [rows, columns]; on GPUs with columns of zeros up to a multiple of 16
  at::Tensor inverse_scales;  // fp32, [1, 1] or [rows, 1]: value * inverse scale is the number that it stands for
};

enum class Fp8Scale : uint8_t { kOfTensor, kOfRow };

// A matrix as its two readers need it: a GEMM that sums over its columns, and one that sums over its rows.
struct Fp8Cast {
  at::ScalarType type = at::kFloat8_e4m3fn;
  std::optional<Fp8Scale> plain = {};       // empty: not wanted
  std::optional<Fp8Scale> transposed = {};  // kOfRow: of the transposed matrix's rows
  bool power_of_two = false;                // scales are rounded down to powers of two
};
struct Fp8Pair {
  Fp8Matrix plain, transposed;  // undefined: not wanted
};

// `matrix`: [rows, columns] in bf16, columns a multiple of 16.
Fp8Pair to_fp8(const at::Tensor& matrix, const Fp8Cast& cast);

// left * right^T + bias, summed in fp32 and rounded once: [rows of left, rows of right]. `fast`: GPUs may add less
// precisely within the GEMM. `bias`: bf16 [rows of right]. `cache`: of algorithms for GEMMs with one scale a factor;
// null: PyTorch's.
struct Fp8Gemm {
  Fp8Matrix left, right;
  std::optional<at::Tensor> bias = {};
  bool fast = false;
};
at::Tensor multiply(const Fp8Gemm& gemm, const GemmCachePtr& cache = {});  // bf16
// Into `out`, contiguous, bf16 or fp32; `adds`: to what is there, on GPUs before it is rounded where there is a cache.
void multiply(const Fp8Gemm& gemm, at::Tensor out, bool adds, const GemmCachePtr& cache = {});

}  // namespace dslaunch::runtime::device
