#include "runtime/state/tensor_bytes.hpp"

#include <ATen/ops/empty.h>

#include <cstring>

namespace dslaunch::runtime {

std::string bytes_of_tensor(const at::Tensor& host) {
  const at::Tensor dense = host.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

at::Tensor tensor_of_bytes(const std::string& bytes) {
  const at::Tensor out = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(out.mutable_data_ptr(), bytes.data(), bytes.size());
  return out;
}

}  // namespace dslaunch::runtime
