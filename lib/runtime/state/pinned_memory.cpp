#include "runtime/state/pinned_memory.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <atomic>

#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

at::Tensor pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype) {
  const auto ordinary = at::TensorOptions().dtype(dtype);
  try {
    return at::empty(shape, ordinary.pinned_memory(true));
  } catch (const c10::Error& error) {
    static std::atomic_flag told;
    if (!told.test_and_set()) {
      log::warning(
          "this host gives no pinned memory any more ({}): copies between it and the device go through ordinary "
          "memory, right but slower, and the run stands still meanwhile",
          first_line(error.what_without_backtrace()));
    }
  }
  return at::empty(shape, ordinary);
}

}  // namespace dslaunch::runtime
