// Device work that is captured once and then launched with one call: a CUDA graph. dsworker does not link CUDA, so
// creating the first graph loads the CUDA module.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace dslaunch::runtime::engine::step {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Calls `work`; the operations that it enqueues on the current stream, and on streams forked from and joined to the
  // current stream, are captured instead of run. The device must be idle. The graph owns memory that `work` allocates;
  // the results there are available after every replay, as long as a tensor holds that memory. Throws what `work`
  // throws, or the reason why capture failed; then the random number generators continue as if capture() had not been
  // called, and this object must not be used again.
  virtual void capture(const std::function<void()>& work) = 0;
  // Enqueues the captured work on the current stream, with the random numbers that running `work` again would draw.
  virtual void replay() = 0;
};

// What the CUDA module provides to this room.
struct GraphFunctions {
  std::unique_ptr<DeviceGraph> (*make)(c10::Device device, const DeviceGraph* shares);
};

// `shares`: a graph of this device that may write to the new one's memory when it is replayed, and the reverse; may be
// null. Throws UserError 69 when there is no CUDA module to load.
std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device, const DeviceGraph* shares = nullptr);

}  // namespace dslaunch::runtime::engine::step
