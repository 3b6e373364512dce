#include "runtime/state/step_streams.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dslaunch::runtime {

StepStreams::StepStreams(c10::Device device, bool overlaps) : device_(device) {
  if (!overlaps || device.is_cpu()) return;
  for (Side& side : sides_) side.stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

StreamMark StepStreams::mark() const {
  if (device_.is_cpu()) return {};
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return {std::move(event), epoch_};
}

void StepStreams::wait(const StreamMark& mark) const {
  if (is_pending(mark)) mark.event->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void StepStreams::wait(SideStream which, const StreamMark& mark) const {
  const auto& stream = side(which).stream;
  if (!stream) {
    wait(mark);
  } else if (is_pending(mark)) {
    mark.event->block(*stream);
  }
}

StreamMark StepStreams::run(SideStream which, const std::function<void()>& work) {
  Side& side = this->side(which);
  if (!side.stream) {
    work();
    return {};
  }
  const c10::StreamGuard on_side(*side.stream);
  work();
  return side.end = mark();
}

void StepStreams::join() {
  for (const Side& side : sides_) wait(side.end);
  epoch_ += 1;
}

}  // namespace dslaunch::runtime
