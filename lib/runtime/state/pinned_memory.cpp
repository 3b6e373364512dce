#include "runtime/state/pinned_memory.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <atomic>

#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::atomic_flag told;  // once in a process

// `make` takes the options of the memory.
template <class Make>
at::Tensor make_pinned_if_possible(at::ScalarType dtype, Make&& make) {
  const auto ordinary = at::TensorOptions().dtype(dtype);
  try {
    return make(ordinary.pinned_memory(true));
  } catch (const c10::Error& error) {
    if (!told.test_and_set()) {
      log::warning(
          "this host gives no pinned memory any more ({}): copies between it and the device go through ordinary "
          "memory, right but slower, and the run stands still meanwhile",
          first_line(error.what_without_backtrace()));
    }
  }
  return make(ordinary);
}

}  // namespace

at::Tensor pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype) {
  return make_pinned_if_possible(dtype, [&](const at::TensorOptions& options) { return at::empty(shape, options); });
}

at::Tensor pinned_if_possible(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype) {
  return make_pinned_if_possible(
      dtype, [&](const at::TensorOptions& options) { return at::empty_strided(shape, strides, options); });
}

}  // namespace dslaunch::runtime
