// Work on a second stream of a device: communication that overlaps computation. On host memory, or without overlap,
// work runs immediately and marks have no effect. One thread at a time.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>

namespace dslaunch::runtime {

// A point in a stream; empty: nothing to wait for.
using StreamMark = std::shared_ptr<c10::Event>;

// The point that the current stream has reached.
StreamMark mark_current_stream(c10::Device device);
// Work that is enqueued on the current stream from now on waits for `mark`.
void wait_on_current_stream(const StreamMark& mark, c10::Device device);

class SideStream {
 public:
  SideStream(c10::Device device, bool overlaps);
  bool overlaps() const { return stream_.has_value(); }
  // Work that is enqueued on the side stream from now on waits for `mark`.
  void wait(const StreamMark& mark);
  // Enqueues `work` on the side stream; returns the point after it.
  StreamMark run(const std::function<void()>& work);

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace dslaunch::runtime
