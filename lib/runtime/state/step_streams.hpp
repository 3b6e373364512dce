// All streams of a training step on a device besides the current one, and the points in them for which others wait:
// communication that overlaps computation. On host memory, or without overlap, work runs immediately and marks have no
// effect.
//
// A step that is captured as a CUDA graph must not wait for a point outside the capture, nor the reverse. join() and
// discard() therefore void every mark: nothing waits for a void mark. Those who keep marks need not know of captures.
// One thread at a time.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace dslaunch::runtime {

// A point in a stream; empty: nothing to wait for.
struct StreamMark {
  std::shared_ptr<c10::Event> event;
  int64_t epoch = 0;  // number of calls of join() and discard() before it
};

enum class SideStream : uint8_t {
  kReduction,    // of gradients
  kUnshard,      // gathers of a unit's parameters, ahead of its use
  kPublication,  // gathers of all parameters after the update
  kTransfer      // of a pipeline: activations and their gradients
};

class StepStreams {
 public:
  // `overlaps`: false: work for side streams runs on the current one.
  StepStreams(c10::Device device, bool overlaps);
  bool overlaps() const { return sides_[0].stream.has_value(); }

  // The point that the current stream has reached.
  StreamMark mark() const;
  // For a point that somebody else has recorded, in a stream of theirs.
  StreamMark mark_of(std::shared_ptr<c10::Event> event) const { return {std::move(event), epoch_}; }
  // Whether waiting for `mark` has an effect.
  bool is_pending(const StreamMark& mark) const { return mark.event != nullptr && mark.epoch == epoch_; }
  // Work that is enqueued on the current stream from now on waits for `mark`; on a side stream likewise.
  void wait(const StreamMark& mark) const;
  void wait(SideStream side, const StreamMark& mark) const;
  // Enqueues `work` on the side stream; returns the point after it.
  StreamMark run(SideStream side, const std::function<void()>& work);

  // The current stream waits for everything on the side streams. All marks are void.
  void join();
  // Work since the last join() was captured and never ran. All marks are void.
  void discard() { epoch_ += 1; }

 private:
  struct Side {
    std::optional<c10::Stream> stream;
    StreamMark end;  // after the last work
  };
  Side& side(SideStream which) { return sides_[static_cast<size_t>(which)]; }
  const Side& side(SideStream which) const { return sides_[static_cast<size_t>(which)]; }

  const c10::Device device_;
  std::array<Side, 4> sides_;
  int64_t epoch_ = 0;
};

}  // namespace dslaunch::runtime
