// The mean over ranks of tensors of which every rank sends one bit for each element, with error feedback (1-bit Adam,
// https://arxiv.org/abs/2102.02888). In two rounds, as in DeepSpeed:
//
//   1. Each rank adds what its last rounding lost, and rounds every tensor to signs times one scale, the root mean
//      square. Rank r receives the r-th chunk of all ranks' signs, with their scales (an all-to-all).
//   2. It takes the mean of them, adds what its own last rounding of that chunk lost, rounds again with one scale for
//      the chunk, and all ranks receive all chunks (an all-gather).
//
// The sign of 0 is positive. A tensor is padded with zeros to chunks of whole bytes; what rounding loses of the padding
// is fed back too. Every rank gets the same bits. One thread; on a device everything is enqueued on the current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::comm {
class Communicator;
}

namespace dslaunch::runtime::optim {

class OneBitAllReduce {
 public:
  // `numels`: of the tensors, each at least 1. `ranks` must outlive this object; null, or of one rank: mean() returns
  // its argument, and there are no errors.
  OneBitAllReduce(std::vector<int64_t> numels, comm::Communicator* ranks, at::Device device);

  // `values`: fp32, the tensors one behind the other. `skip`: 0-dim fp32 on the device; undefined or 0: the errors of
  // this call are kept for the next one. Collective.
  at::Tensor mean(const at::Tensor& values, const at::Tensor& skip);
  // The next call adds no errors.
  void forget_errors();

  static int64_t error_bytes(const std::vector<int64_t>& numels, int num_ranks);

 private:
  at::Tensor in_chunks(const at::Tensor& values) const;
  at::Tensor from_chunks(const at::Tensor& chunks) const;
  at::Tensor scales_of(const at::Tensor& chunks) const;
  at::Tensor at_columns(const at::Tensor& scales) const;
  at::Tensor packed(const at::Tensor& is_positive, const at::Tensor& scales) const;
  at::Tensor unpacked(const at::Tensor& received, double weight) const;

  const std::vector<int64_t> numels_;
  comm::Communicator* const ranks_;  // null: one
  std::vector<int64_t> columns_;     // of a chunk of each tensor
  int64_t num_columns_ = 0;          // their sum
  at::Tensor repeats_;               // columns_, int64 on the device
  at::Tensor bits_;                  // their values in a byte, of the first element the highest
  at::Tensor worker_error_;          // [ranks, columns]
  at::Tensor server_error_;          // [1, columns]
};

}  // namespace dslaunch::runtime::optim
