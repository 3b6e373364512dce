#include "runtime/optim/one_bit_all_reduce.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "runtime/optim/step_choice.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kBits = 8;  // of a byte of signs
constexpr auto kScaleBytes = static_cast<int64_t>(sizeof(float));

// DeepSpeed pads a tensor so that each chunk has a multiple of lcm(ranks, 8) elements.
int64_t columns_of(int64_t numel, int64_t num_ranks) {
  const int64_t multiple = std::lcm(num_ranks, kBits);
  return (numel + num_ranks * multiple - 1) / (num_ranks * multiple) * multiple;
}

comm::Buffer bytes_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr(), static_cast<size_t>(tensor.numel()), comm::DType::kUInt8};
}

}  // namespace

OneBitAllReduce::OneBitAllReduce(std::vector<int64_t> numels, comm::Communicator* ranks, at::Device device)
    : numels_(std::move(numels)), ranks_(ranks != nullptr && ranks->size() > 1 ? ranks : nullptr) {
  if (ranks_ == nullptr) return;
  for (const int64_t numel : numels_) {
    DSL_CHECK(numel > 0, "tensors of at least one element");
    columns_.push_back(columns_of(numel, ranks_->size()));
  }
  num_columns_ = std::accumulate(columns_.begin(), columns_.end(), int64_t{0});
  repeats_ = at::tensor(columns_, at::kLong).to(device);
  bits_ = at::tensor({128, 64, 32, 16, 8, 4, 2, 1}, at::kByte).to(device);
  const auto fp32 = at::TensorOptions().device(device).dtype(at::kFloat);
  worker_error_ = at::zeros({ranks_->size(), num_columns_}, fp32);
  server_error_ = at::zeros({1, num_columns_}, fp32);
}

int64_t OneBitAllReduce::error_bytes(const std::vector<int64_t>& numels, int num_ranks) {
  if (num_ranks <= 1) return 0;
  int64_t elements = 0;
  for (const int64_t numel : numels) elements += (num_ranks + 1) * columns_of(numel, num_ranks);
  return elements * static_cast<int64_t>(sizeof(float));
}

void OneBitAllReduce::forget_errors() {
  if (ranks_ == nullptr) return;
  worker_error_.zero_();
  server_error_.zero_();
}

at::Tensor OneBitAllReduce::mean(const at::Tensor& values, const at::Tensor& skip) {
  if (ranks_ == nullptr) return values;
  const int64_t num_ranks = ranks_->size();
  // Rounds to signs and scales; keeps what that loses; returns the message.
  const auto round = [&](const at::Tensor& exact, const at::Tensor& error) {
    const at::Tensor scales = scales_of(exact), is_positive = exact >= 0;
    const at::Tensor size = at_columns(scales);
    write_unless_skipped(error, exact - at::where(is_positive, size, -size), skip);
    return packed(is_positive, scales);
  };
  const at::Tensor sent = round(in_chunks(values) + worker_error_, worker_error_);
  const at::Tensor received = at::empty_like(sent);
  ranks_->all_to_all(bytes_of(sent), bytes_of(received));
  const at::Tensor average = unpacked(received, 1.0 / static_cast<double>(num_ranks)).sum(0, /*keepdim=*/true);
  const at::Tensor own = round(average + server_error_, server_error_)[0].contiguous();
  const at::Tensor all = at::empty_like(sent);
  ranks_->all_gather(bytes_of(own), bytes_of(all));
  return from_chunks(unpacked(all, 1.0));
}

// [ranks, columns]: row r has the r-th chunk of every tensor.
at::Tensor OneBitAllReduce::in_chunks(const at::Tensor& values) const {
  const int64_t num_ranks = ranks_->size();
  std::vector<at::Tensor> chunks;
  int64_t first = 0;
  for (size_t i = 0; i < numels_.size(); ++i) {
    const int64_t padding = num_ranks * columns_[i] - numels_[i];
    const at::Tensor padded = at::constant_pad_nd(values.narrow(0, first, numels_[i]), {0, padding});
    chunks.push_back(padded.view({num_ranks, columns_[i]}));
    first += numels_[i];
  }
  return at::cat(chunks, 1);
}

at::Tensor OneBitAllReduce::from_chunks(const at::Tensor& chunks) const {
  std::vector<at::Tensor> values;
  int64_t first = 0;
  for (size_t i = 0; i < numels_.size(); ++i) {
    values.push_back(chunks.narrow(1, first, columns_[i]).reshape({-1}).narrow(0, 0, numels_[i]));
    first += columns_[i];
  }
  return at::cat(values);
}

// fp32 [1, tensors]: the root mean square of each tensor's chunks, padding included. Squares are added in double.
at::Tensor OneBitAllReduce::scales_of(const at::Tensor& chunks) const {
  std::vector<at::Tensor> means;
  int64_t first = 0;
  for (const int64_t columns : columns_) {
    means.push_back(chunks.narrow(1, first, columns).square().mean(at::kDouble));
    first += columns;
  }
  return at::stack(means).sqrt().to(at::kFloat).unsqueeze(0);
}

// From [rows, tensors] to [rows, columns].
at::Tensor OneBitAllReduce::at_columns(const at::Tensor& scales) const {
  return scales.repeat_interleave(repeats_, 1, num_columns_);
}

// A message for each row: a bit for each column, then the scales.
at::Tensor OneBitAllReduce::packed(const at::Tensor& is_positive, const at::Tensor& scales) const {
  const int64_t rows = is_positive.size(0);
  const at::Tensor bits = is_positive.view({rows, num_columns_ / kBits, kBits}).to(at::kByte);
  const at::Tensor bytes = (bits * bits_).sum(-1, /*keepdim=*/false, at::kByte);
  return at::cat({bytes, scales.contiguous().view(at::kByte).expand({rows, -1})}, 1);
}

// [ranks, columns], times the weight.
at::Tensor OneBitAllReduce::unpacked(const at::Tensor& received, double weight) const {
  const int64_t sign_bytes = num_columns_ / kBits, rows = received.size(0);
  const at::Tensor bytes = received.narrow(1, 0, sign_bytes).unsqueeze(2);
  const at::Tensor is_positive = bytes.bitwise_and(bits_).ne(0).view({rows, num_columns_});
  const auto num_tensors = static_cast<int64_t>(numels_.size());
  const at::Tensor scales =
      received.narrow(1, sign_bytes, num_tensors * kScaleBytes).clone(at::MemoryFormat::Contiguous);
  const at::Tensor size = at_columns(scales.view(at::kFloat) * weight);
  return at::where(is_positive, size, -size);
}

}  // namespace dslaunch::runtime::optim
