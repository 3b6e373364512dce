// Recognises hardware and resource errors by their text: LibTorch has one type for all CUDA errors, and a TorchScript
// graph loses even that type. Any thread.
#pragma once
#include <string>

#include "base/error.hpp"

namespace dslaunch {

// An allocation failed, on the device or the host (69).
class OutOfMemoryError : public UserError {
 public:
  // `failure`: "out of memory in WHAT: CAUSE"; the message is that and what the user can change.
  OutOfMemoryError(const std::string& failure, const std::string& advice);
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
};

// `cause`: the line with the error text; `during`: what was tried ("forward on Long[4, 16]"). Throws OutOfMemoryError
// when an allocation failed, Error 69 when the GPU itself failed or cannot run the kernels,
// UserError 65 when a kernel met an index that is out of range. Returns when the text matches none of these.
void throw_if_resource_failed(const std::string& cause, const std::string& during);

}  // namespace dslaunch
