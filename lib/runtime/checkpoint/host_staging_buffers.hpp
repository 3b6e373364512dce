// Copies of a rank's state on the host, for a save in the background. The memory is allocated once and reused by every
// save. For a device it is pinned (if the host provides pinned memory), which takes the host about a second for several
// GB, and the copies run on a separate stream during the next forward and backward.
//
//   prepare(sizes)             once, if the save is known to come: allocates that memory on a separate thread
//   begin()  take…  end()      copies the values as they are after all work enqueued so far
//   block_current_stream()     before a copied original is overwritten: enqueues a wait, the host continues
//   wait_until_arrived()       any thread: the copies may be read
//
// All but wait_until_arrived() on one thread. The result of take() is valid until the next begin().
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace dslaunch::runtime {

class HostStagingBuffers {
 public:
  explicit HostStagingBuffers(at::Device device);

  HostStagingBuffers(const HostStagingBuffers&) = delete;
  HostStagingBuffers& operator=(const HostStagingBuffers&) = delete;
  ~HostStagingBuffers();

  // The sizes in bytes of the future copies, in that order. Does nothing on the host, where allocation is cheap.
  void prepare(std::vector<int64_t> sizes);
  void begin();
  // Returns a flat host tensor. The original must not change until block_current_stream() at least.
  at::Tensor take(const at::Tensor& values);
  // For values that the next forward may already change (buffers): copied before that forward runs.
  at::Tensor take_before_forward(const at::Tensor& values);
  void end();

  void block_current_stream();
  void wait_until_arrived() const;
  int64_t num_bytes() const { return num_bytes_; }  // taken since begin()

 private:
  struct Block {
    at::Tensor bytes;
    int64_t used = 0;
  };
  void wait_until_prepared();
  at::Tensor allocate(int64_t num_bytes);
  at::Tensor copy_of(const at::Tensor& flat);

  const at::Device device_;
  std::thread preparing_;  // owns blocks_ and num_bytes_ while it runs
  std::vector<Block> blocks_;
  int64_t num_bytes_ = 0;
  std::optional<c10::Stream> side_stream_;  // empty on the host
  std::optional<c10::Event> arrived_;
};

}  // namespace dslaunch::runtime
