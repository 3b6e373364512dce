#include "runtime/sharding/flat_collectives.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

comm::DType wire_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return comm::DType::kFloat32;
    case at::kBFloat16:
      return comm::DType::kBFloat16;
    case at::kHalf:
      return comm::DType::kFloat16;
    case at::kLong:
      return comm::DType::kInt64;
    case at::kByte:
      return comm::DType::kUInt8;
    default:
      break;
  }
  throw InternalError(__FILE__, __LINE__, "wire_type",
                      fmt::format("{} is not sent between ranks", c10::toString(dtype)));
}

at::Tensor slice_of(const at::Tensor& flat, int rank, int size) {
  const int64_t numel = flat.numel() / size;
  return flat.narrow(0, rank * numel, numel);
}

}  // namespace

comm::Buffer buffer_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<size_t>(tensor.numel()), wire_type(tensor.scalar_type())};
}

at::Tensor own_slice(const at::Tensor& flat, const comm::Communicator& group) {
  return slice_of(flat, group.rank(), group.size());
}

void reduce_to_owners(const at::Tensor& flat, comm::Communicator& group, bool scatter) {
  if (scatter) {
    group.reduce_scatter(buffer_of(flat), buffer_of(own_slice(flat, group)), comm::ReduceOp::kSum);
  } else {
    group.all_reduce(buffer_of(flat), comm::ReduceOp::kSum);
  }
}

void gather_from_owners(const at::Tensor& shard, const at::Tensor& flat, comm::Communicator& group, bool all_gather) {
  if (all_gather) {
    group.all_gather(buffer_of(shard), buffer_of(flat));
    return;
  }
  const at::Tensor own = own_slice(flat, group);
  if (own.data_ptr() != shard.data_ptr()) own.copy_(shard);
  for (int owner = 0; owner < group.size(); ++owner) {
    group.broadcast(buffer_of(slice_of(flat, owner, group.size())), owner);
  }
}

}  // namespace dslaunch::runtime
