// The micro batches of a run in training, on the device of its rank. On a GPU the next ones are copied, and their
// pictures transformed, in a stream of their own while a step runs. Measures how long steps wait for their batches. One
// thread.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime::engine::setup {

class DeviceBatches {
 public:
  // `step`: the first one that takes batches.
  DeviceBatches(BatchLoader loader, at::Device device, int64_t step);
  // For the current stream. Throws the error that occurred while the batch was assembled.
  MicroBatch next();
  // After the last global batch that was handed out completely: checkpoints store it.
  DataPosition position() const { return position_; }
  // How long `step` waited for its batches; 0 for one that is long past. Waits until the device has them.
  double waited_ms(int64_t step) const;

 private:
  struct Staged {
    MicroBatch batch;
    DataPosition position;
    std::optional<c10::Event> ready;  // on a device
    std::exception_ptr error;
  };
  struct Wait {
    int64_t step = 0;
    TimeMark begin, end;
  };

  void stage();
  void hand_over(const Staged& staged);
  bool may_stage_ahead() const;

  BatchLoader loader_;
  const at::Device device_;
  std::optional<c10::Stream> side_stream_;  // on a device
  std::deque<Staged> staged_;               // in order
  int64_t num_returned_ = 0;
  int64_t step_;
  DataPosition position_;
  std::deque<Wait> waits_;  // of the last steps
};

}  // namespace dslaunch::runtime::engine::setup
