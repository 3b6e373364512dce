// Parameters that rest in files, in their compute dtype: where those of a span are.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace dslaunch::runtime {

class ParameterWriter {
 public:
  virtual ~ParameterWriter() = default;
  // Elements [begin, begin + values.numel()) of this rank's slice of a flat group; `values` is 1-D, on any device, of
  // any floating type, and rounded to the parameters' own. Returns when the bytes are there, or throws Error (74) with
  // the directory, offset and the system's reason. Waits for the device. Any thread, but not beside a read of the
  // group.
  virtual void write(int group, int64_t begin, const at::Tensor& values) = 0;
};

struct StoredParameter {
  std::shared_ptr<ParameterWriter> file;
  int group = 0;
  int64_t begin = 0;  // of the span, within the slice
  at::ScalarType dtype = at::kFloat;

  void write(int64_t offset, const at::Tensor& values) const { file->write(group, begin + offset, values); }
};

}  // namespace dslaunch::runtime
