// NumPy's array format: magic, version, a Python dict literal with descr, fortran_order and shape, then the elements.
// Pure; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct NpyHeader {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  size_t data_begin = 0;  // bytes from the start
};

bool looks_like_npy(std::span<const uint8_t> bytes);

// `bytes`: the beginning of a file or archive member of `num_bytes`, with the whole header; checks that all elements
// are present. `subject` starts every message: "data file 'x.npy'". Throws UserError(65).
NpyHeader read_npy_header(std::span<const uint8_t> bytes, uint64_t num_bytes, const std::string& subject);
inline NpyHeader read_npy_header(std::span<const uint8_t> bytes, const std::string& subject) {
  return read_npy_header(bytes, bytes.size(), subject);
}

}  // namespace dslaunch::runtime
