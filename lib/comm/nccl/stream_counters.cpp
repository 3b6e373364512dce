#include "comm/nccl/stream_counters.hpp"

#include <new>

namespace dslaunch::comm {

StreamCounters::StreamCounters() {
  // The driver library is not linked: it belongs to the machine, and a host without GPUs does not have it.
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
  constexpr unsigned kSinceCuda12 = 12000;
  if (::cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &found, kSinceCuda12, cudaEnableDefault, &how) !=
          cudaSuccess ||
      how != cudaDriverEntryPointSuccess) {
    return;
  }
  void* memory = nullptr;
  if (::cudaHostAlloc(&memory, kMaxStreams * sizeof(std::atomic<uint32_t>), cudaHostAllocPortable) != cudaSuccess) {
    return;
  }
  counters_ = static_cast<std::atomic<uint32_t>*>(memory);
  for (size_t i = 0; i < kMaxStreams; ++i) new (counters_ + i) std::atomic<uint32_t>(0);
  write_value_ = reinterpret_cast<decltype(write_value_)>(found);
}

StreamCounters::~StreamCounters() {
  if (counters_) ::cudaFreeHost(counters_);
}

namespace {

// A write captured into a graph would store the same number at every replay.
bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return ::cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

}  // namespace

StreamCounters::Mark StreamCounters::mark(cudaStream_t stream) {
  size_t i = 0;
  while (i < num_lanes_ && lanes_[i].stream != stream) ++i;
  if (!write_value_ || i == kMaxStreams || is_captured(stream)) return {};
  if (i == num_lanes_) lanes_[num_lanes_++].stream = stream;
  const uint32_t value = lanes_[i].num_sent + 1;
  const auto address = reinterpret_cast<CUdeviceptr>(counters_ + i);
  if (write_value_(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) return {};
  lanes_[i].num_sent = value;
  return {counters_ + i, value};
}

}  // namespace dslaunch::comm
