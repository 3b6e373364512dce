// The values of a model's parameters in its file, or where else they come from: always whole parameters, of which a
// tensor parallel rank takes its part (state/local_slice_layout.hpp). Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace dslaunch::runtime::model {

// Whether all elements of the tensor share one place in memory: a parameter that was exported without values.
inline bool is_stride_zero(const at::Tensor& value) {
  for (int64_t dim = 0; dim < value.dim(); ++dim) {
    if (value.size(dim) > 1 && value.stride(dim) != 0) return false;  // dims of size 1 may have any stride
  }
  return value.numel() > 1;
}

class InitialValues {
 public:
  // `values`: by parameter.
  explicit InitialValues(std::vector<at::Tensor> values) : values_(std::move(values)) {}

  // On the host, read-only; for an empty parameter a tensor whose elements share one place.
  const at::Tensor& value(int parameter) const { return values_.at(static_cast<size_t>(parameter)); }
  bool is_empty(int parameter) const { return source_ || is_stride_zero(value(parameter)); }

  // Reads elements [begin, begin + out.numel()) of a parameter into `out` (1-D, floating point, host memory).
  using Read = std::function<void(int parameter, int64_t begin, at::Tensor out)>;
  // From now on all parameters count as empty, and their values come from there.
  void set_source(Read read) { source_ = std::move(read); }
  const Read& source() const { return source_; }  // null: there is none

 private:
  std::vector<at::Tensor> values_;
  Read source_;
};

}  // namespace dslaunch::runtime::model
