// A bf16 matrix as fp8, times scales that bring the largest magnitude of the matrix or of each row to the largest
// number of the type; in its own order, transposed (then of each column), or both in one pass. Two kernels: maxima,
// then the cast. Maxima are exact and have no order, so results repeat bit by bit. See fp8_cast.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch::kernels {

// One of the two orders.
struct Fp8Output {
  void* values = nullptr;           // on 16 bytes; null: not wanted
  bool by_row = false;              // a scale for each of its rows; false: one
  float* inverse_scales = nullptr;  // 1 or one for each row: what a value is to be multiplied with
};

struct Fp8CastArguments {
  const void* matrix = nullptr;  // bf16 [rows][columns], on 16 bytes; columns a multiple of 8
  size_t rows = 0, columns = 0;  // neither 0
  bool is_e5m2 = false;          // else e4m3
  bool power_of_two = false;     // scales are rounded down to powers of two
  Fp8Output plain;               // [rows][columns]
  Fp8Output transposed;          // [columns][stride]
  size_t stride = 0;             // rows, rounded up to a multiple of 16; what is past the last row becomes 0
  uint32_t* maxima = nullptr;    // num_fp8_maxima() zeros; not read if the maximum is known
  // Without scales of rows: the largest magnitude of the matrix, known before: bits of bf16 without the sign, the
  // largest of kFp8MaximumSlots numbers that lie kFp8SlotStride apart. Null: the first kernel finds it.
  const uint32_t* noted = nullptr;
};

inline constexpr int kFp8MaximumSlots = 64, kFp8SlotStride = 8;

inline size_t num_fp8_maxima(size_t rows, size_t columns) {
  return 1 + rows + columns;
}

// Both, one after the other; with a known maximum the cast alone.
cudaError_t launch_fp8_cast(const Fp8CastArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
