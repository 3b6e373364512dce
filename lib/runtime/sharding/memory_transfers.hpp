// Copies between a device and ordinary host memory, which a device's copy engine does not reach. One thread at a time;
// it may be autograd's.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

class MemoryTransfers {
 public:
  virtual ~MemoryTransfers() = default;
  // Begins to copy `values` (1-D, read on the current stream) to `host`, of the same size and dtype. Copies that reach
  // the same memory arrive in their order.
  virtual void download(const at::Tensor& values, const at::Tensor& host) = 0;
  // Fills `destination` (1-D, on the device) on the current stream; `host`, of the same size and dtype, has been read
  // when the call returns.
  virtual void upload(const at::Tensor& host, const at::Tensor& destination) = 0;
  // Returns when all downloads have arrived. Waits for the device.
  virtual void finish() = 0;
};

}  // namespace dslaunch::runtime
