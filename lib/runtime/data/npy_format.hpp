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

// `bytes`: the whole file or archive member; checks that all elements are present. `subject` starts every message:
// "data file 'x.npy'". Throws UserError(65).
NpyHeader read_npy_header(std::span<const uint8_t> bytes, const std::string& subject);

}  // namespace dslaunch::runtime
