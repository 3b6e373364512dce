// The functions of the CUDA module: one table of the tables that rooms state beside what uses them. dsworker does not
// link CUDA: the first call loads the module. The module stays loaded, and holds code only, not state.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace dslaunch::runtime {
struct CodecFunctions;
}
namespace dslaunch::runtime::optim {
struct DeviceFunctions;
}
namespace dslaunch::runtime::model::decoding {
struct DecodingFunctions;
}
namespace dslaunch::runtime::model::layers {
struct LayerFunctions;
}
namespace dslaunch::runtime::model::fusion {
struct FusionFunctions;
}
namespace dslaunch::runtime::engine::step {
struct GraphFunctions;
}

namespace dslaunch::runtime::device {

struct Fp8Functions;
struct GemmFunctions;

struct DeviceModule {
  // Whether work on the current stream of this CUDA device is captured into a graph.
  bool (*is_capturing)(c10::Device device);
  // Only while it is: the offset of the next random numbers from the graph's first ones. The generator's state lies on
  // the device then and is read at each replay; the host knows how far the captured work has come.
  uint64_t (*captured_offset)(c10::Device device);
  void (*set_captured_offset)(c10::Device device, uint64_t offset);
  const GemmFunctions& gemm;
  const Fp8Functions& fp8;
  const CodecFunctions& codec;
  const optim::DeviceFunctions& optim;
  const model::decoding::DecodingFunctions& decoding;
  const model::layers::LayerFunctions& layers;
  const model::fusion::FusionFunctions& fusion;
  const engine::step::GraphFunctions& graphs;
};

// Any thread. Throws UserError 69 when there is no CUDA module to load.
const DeviceModule& module();

// Whether work on the device's current stream is captured into a CUDA graph: nothing can be measured or read from
// there. False on CPUs.
bool is_capturing(c10::Device device);

}  // namespace dslaunch::runtime::device
