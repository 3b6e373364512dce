// Work of a device, recorded once and started with one call from then on: a CUDA graph. dsworker links no CUDA, so the
// first graph opens the CUDA module.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace dslaunch::runtime {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Calls `work`; what that enqueues on the current stream, and on streams that it forks from and joins to it, is
  // recorded instead of run. The device must be idle. Memory that `work` takes belongs to the graph, and what it wrote
  // there is found there after every replay, as long as a tensor holds it. Throws what `work` throws, or what speaks
  // against recording it; then random numbers go on as if it had never been called, and this object is of no more use.
  virtual void record(const std::function<void()>& work) = 0;
  // Enqueues the recorded work on the current stream; it draws the random numbers that it would have drawn anew.
  virtual void replay() = 0;
};

// What the CUDA module does for this room.
struct GraphFunctions {
  std::unique_ptr<DeviceGraph> (*make)(c10::Device device);
};

// The name of the module's function `extern "C" const GraphFunctions* f()`.
inline constexpr const char* kGraphFunctionsSymbol = "dslaunch_cuda_graph_functions";

// Throws UserError 69 when there is no CUDA module to open.
std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device);

}  // namespace dslaunch::runtime
