// The tables that the rooms' sources of the CUDA module define, for the module's one table. For sources of the module
// only.
#pragma once
#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime {
extern const CodecFunctions kCodecFunctions;
}
namespace dslaunch::runtime::optim {
extern const DeviceFunctions kDeviceFunctions;
}
namespace dslaunch::runtime::model::decoding {
extern const DecodingFunctions kDecodingFunctions;
}
namespace dslaunch::runtime::model::layers {
extern const LayerFunctions kLayerFunctions;
}
namespace dslaunch::runtime::model::fusion {
extern const FusionFunctions kFusionFunctions;
}
namespace dslaunch::runtime::engine::step {
extern const GraphFunctions kGraphFunctions;
}
namespace dslaunch::runtime::device {
extern const Fp8Functions kFp8Functions;
extern const GemmFunctions kGemmFunctions;
}  // namespace dslaunch::runtime::device
