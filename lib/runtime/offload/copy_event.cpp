#include "runtime/offload/copy_event.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <thread>

namespace dslaunch::runtime::offload {
namespace {

constexpr auto kDevicePollInterval = std::chrono::microseconds(50);
constexpr int kPollsPerPeerCheck = 200;

}  // namespace

std::shared_ptr<c10::Event> record_current(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

void wait_for_copy(const std::shared_ptr<c10::Event>& event, const std::function<void()>& check_peers,
                   const std::function<void()>& meanwhile) {
  for (int polls = 1; event && !event->query(); ++polls) {
    std::this_thread::sleep_for(kDevicePollInterval);
    if (check_peers && polls % kPollsPerPeerCheck == 0) check_peers();
    if (meanwhile) meanwhile();
  }
}

}  // namespace dslaunch::runtime::offload
