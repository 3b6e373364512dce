// Copies between a device and host memory that the host has to wait for.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>

namespace dslaunch::runtime::offload {

// The point that the current stream of `device` has reached; null on the host: nothing to wait for.
std::shared_ptr<c10::Event> record_current(c10::Device device);

// Returns when `event` has been reached, or is null. Polls: a device that waits for a lost rank never gets there.
// `check_peers`: called now and then; throws if one was lost. `meanwhile`: called after each poll; it may reset the
// event. Both may be empty.
void wait_for_copy(const std::shared_ptr<c10::Event>& event, const std::function<void()>& check_peers,
                   const std::function<void()>& meanwhile = {});

}  // namespace dslaunch::runtime::offload
