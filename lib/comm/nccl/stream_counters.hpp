// How far a device is in its streams, as numbers in host memory that the device itself writes: they can be read while a
// call of CUDA's is stuck. One thread enqueues; any thread reads the counters.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace dslaunch::comm {

class StreamCounters {
 public:
  // On the current device. Where the driver can't write from a stream, mark() gives no place.
  StreamCounters();
  ~StreamCounters();
  StreamCounters(const StreamCounters&) = delete;
  StreamCounters& operator=(const StreamCounters&) = delete;

  struct Mark {
    const std::atomic<uint32_t>* counter = nullptr;  // null: this stream isn't counted, or is being recorded
    uint32_t value = 0;
  };
  // Enqueues on the stream: when it gets here, its counter becomes `value`, one more than at the call before. Does not
  // throw: what is wrong with the device, the collectives will say.
  Mark mark(cudaStream_t stream);

 private:
  static constexpr size_t kMaxStreams = 8;  // a communicator is used on one or two
  struct Lane {
    cudaStream_t stream = nullptr;
    uint32_t num_sent = 0;
  };

  std::atomic<uint32_t>* counters_ = nullptr;  // [kMaxStreams], pinned
  std::array<Lane, kMaxStreams> lanes_;
  size_t num_lanes_ = 0;
  decltype(&::cuStreamWriteValue32) write_value_ = nullptr;
};

}  // namespace dslaunch::comm
