#include "runtime/sharding/side_stream.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dslaunch::runtime {

StreamMark mark_current_stream(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  auto mark = std::make_shared<c10::Event>(device.type());
  mark->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return mark;
}

void wait_on_current_stream(const StreamMark& mark, c10::Device device) {
  if (mark) mark->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

SideStream::SideStream(c10::Device device, bool overlaps) : device_(device) {
  if (overlaps && !device.is_cpu()) {
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
}

void SideStream::wait(const StreamMark& mark) {
  if (!stream_) {
    wait_on_current_stream(mark, device_);
  } else if (mark) {
    mark->block(*stream_);
  }
}

StreamMark SideStream::run(const std::function<void()>& work) {
  if (!stream_) {
    work();
    return nullptr;
  }
  const c10::StreamGuard on_side(*stream_);
  work();
  return mark_current_stream(device_);
}

}  // namespace dslaunch::runtime
