#include "runtime/engine/setup/device_batches.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "runtime/engine/setup/training_data.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

// Of micro batches beyond the next one.
constexpr int64_t kMaxBytesAhead = 256 << 20;
constexpr int64_t kStepsWithWaits = 8;

int64_t bytes_of(const MicroBatch& batch) {
  int64_t bytes = 0;
  for (const auto* tensors : {&batch.inputs, &batch.labels}) {
    for (const auto& tensor : *tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

DeviceBatches::DeviceBatches(BatchLoader loader, at::Device device, int64_t step)
    : loader_(std::move(loader)), device_(device), step_(step), position_(loader_.position()) {
  if (!device.is_cpu()) {
    side_stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
}

// On a device the marks are in the stream of the step: from the end of what it has to do to the batch's arrival.
MicroBatch DeviceBatches::next() {
  TimeMark begin = mark_time(device_);
  if (staged_.empty()) stage();
  Staged staged = std::move(staged_.front());
  staged_.pop_front();
  if (staged.error) std::rethrow_exception(staged.error);
  hand_over(staged);
  position_ = staged.position;
  waits_.push_back({step_, std::move(begin), mark_time(device_)});
  while (waits_.front().step <= step_ - kStepsWithWaits) waits_.pop_front();
  if (++num_returned_ % loader_.accumulation() == 0) ++step_;
  while (may_stage_ahead() && loader_.is_ready()) stage();
  return std::move(staged.batch);
}

// An error is thrown in the place of its batch.
void DeviceBatches::stage() {
  Staged& out = staged_.emplace_back();
  try {
    Batch batch = loader_.next();
    out.position = loader_.position();
    const c10::OptionalStreamGuard on_side(side_stream_);
    out.batch = on_device(std::move(batch), device_);
    if (!side_stream_) return;
    out.ready.emplace(device_.type());
    out.ready->record(*side_stream_);
  } catch (...) {
    out.error = std::current_exception();
  }
}

// The memory is the side stream's: it is used again when the current stream has done what it does with the batch.
void DeviceBatches::hand_over(const Staged& staged) {
  if (!staged.ready) return;
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  staged.ready->block(current);
  for (const auto* tensors : {&staged.batch.inputs, &staged.batch.labels}) {
    for (const auto& tensor : *tensors) tensor.record_stream(current);
  }
}

// The next micro batch in any case; a captured step takes all of its own at its start.
bool DeviceBatches::may_stage_ahead() const {
  if (!side_stream_ || (!staged_.empty() && staged_.back().error)) return false;
  if (staged_.empty()) return true;
  int64_t bytes = 0;
  for (const auto& staged : staged_) bytes += bytes_of(staged.batch);
  return std::ssize(staged_) < loader_.accumulation() && bytes < kMaxBytesAhead;
}

double DeviceBatches::waited_ms(int64_t step) const {
  double sum = 0;
  for (const auto& wait : waits_) {
    if (wait.step == step) sum += milliseconds_between(wait.begin, wait.end);
  }
  return sum;
}

}  // namespace dslaunch::runtime::engine::setup
