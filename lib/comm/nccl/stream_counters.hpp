// The progress of a device in its streams, as numbers in host memory that the device itself writes: they can be read
// while a CUDA call is stuck. One thread enqueues; any thread reads the counters.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace dslaunch::comm {

class StreamCounters {
 public:
  // On the current device. If the driver cannot write from a stream, mark() returns a null counter.
  StreamCounters();
  ~StreamCounters();
  StreamCounters(const StreamCounters&) = delete;
  StreamCounters& operator=(const StreamCounters&) = delete;

  struct Mark {
    const std::atomic<uint32_t>* counter = nullptr;  // null: this stream is not counted, or is being captured
    uint32_t value = 0;
  };
  // Enqueues a write on the stream: when the stream reaches it, its counter becomes `value`, one more than at the
  // previous call. Does not throw: device errors surface in the collectives.
  Mark mark(cudaStream_t stream);

 private:
  static constexpr size_t kMaxStreams = 8;  // a communicator uses one or two
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
