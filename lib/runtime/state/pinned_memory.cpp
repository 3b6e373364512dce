#include "runtime/state/pinned_memory.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// A refused size, or a larger one, is not requested again: each refusal costs a driver call and an exception.
constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> failed_bytes = kNothing;

// `make` takes the tensor options that select the memory.
template <class Make>
at::Tensor make_pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype, Make&& make) {
  const auto ordinary = at::TensorOptions().dtype(dtype);
  const auto bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  if (bytes >= failed_bytes) return make(ordinary);
  try {
    return make(ordinary.pinned_memory(true));
  } catch (const c10::Error& error) {
    if (failed_bytes.exchange(bytes) == kNothing) {
      log::warning(
          "cannot allocate more pinned memory ({}): copies between host and device use ordinary memory, which is "
          "correct but slower and blocks training",
          first_line(error.what_without_backtrace()));
    }
  }
  return make(ordinary);
}

}  // namespace

at::Tensor pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype) {
  return make_pinned_if_possible(shape, dtype,
                                 [&](const at::TensorOptions& options) { return at::empty(shape, options); });
}

at::Tensor pinned_if_possible(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype) {
  return make_pinned_if_possible(
      shape, dtype, [&](const at::TensorOptions& options) { return at::empty_strided(shape, strides, options); });
}

at::Tensor host_memory_for(at::Device device, at::IntArrayRef shape, at::ScalarType dtype) {
  return device.is_cuda() ? pinned_if_possible(shape, dtype) : at::empty(shape, dtype);
}

}  // namespace dslaunch::runtime
