// Overflow-checked products of sizes read from a file: empty when a size is negative or the product exceeds 64 bits.
// Pure.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime {

// The other sizes are checked even if one is 0: strides are products without the zeros.
inline std::optional<int64_t> numel_of(c10::IntArrayRef shape) {
  int64_t product = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    is_empty |= size == 0;
    if (size > 0 && __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return is_empty ? 0 : product;
}

inline std::optional<int64_t> num_bytes_of(c10::IntArrayRef shape, c10::ScalarType dtype) {
  const auto numel = numel_of(shape);
  int64_t bytes = 0;
  if (!numel || __builtin_mul_overflow(*numel, static_cast<int64_t>(c10::elementSize(dtype)), &bytes)) return {};
  return bytes;
}

// The number of elements that a view needs from the start of its storage; 0 when the view is empty.
inline std::optional<int64_t> storage_extent(c10::IntArrayRef shape, c10::IntArrayRef strides, int64_t offset) {
  const auto numel = numel_of(shape);
  if (!numel || shape.size() != strides.size() || offset < 0) return std::nullopt;
  if (*numel == 0) return 0;
  int64_t last = offset;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t step = 0;
    if (strides[dim] < 0 || __builtin_mul_overflow(shape[dim] - 1, strides[dim], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  int64_t extent = 0;
  if (__builtin_add_overflow(last, 1, &extent)) return std::nullopt;
  return extent;
}

}  // namespace dslaunch::runtime
