// Optimizer state of one span that rests in files: master and moments, read and written by ranges, so that memory holds
// no more of them than a caller asks for. Elements are counted from the span's first one.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch::runtime {

class StoredArrays {
 public:
  static constexpr size_t kMaster = 0;  // the moments follow, in the order of the optimizer's moment names

  // `number`: of the span, among those in the same files.
  explicit StoredArrays(size_t number) : number_(number) {}
  virtual ~StoredArrays() = default;
  size_t number() const { return number_; }
  virtual size_t num_arrays() const = 0;
  // Elements [begin, begin + values.numel()) of one array; `values` is fp32, 1-D, contiguous, in host memory. Return
  // when the bytes are there, or throw Error (74) with the directory, offset and the system's reason. `num_following`:
  // so many elements after these will be read next, which may begin at once. Any thread, but not beside an update.
  virtual void read(size_t array, int64_t begin, const at::Tensor& values, int64_t num_following) = 0;
  virtual void write(size_t array, int64_t begin, const at::Tensor& values) = 0;
  // Of the gradients of one step, in the dtype in which they were stored. Two areas: those of a step may still be read
  // when the next ones come.
  virtual void read_gradient(int area, int64_t begin, const at::Tensor& values) = 0;

 private:
  const size_t number_;
};

}  // namespace dslaunch::runtime
