// The state of a device's default random number generator, as a CUDA graph captures it. For sources of the module only.
#pragma once
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace dslaunch::runtime::device {

// LibTorch hides the state that its generator uses. The first call replaces it by an equal one that the module owns;
// it stays the generator's for the rest of the process. Not while work is being captured, except for later calls. Any
// thread.
const c10::intrusive_ptr<at::CUDAGeneratorState>& generator_state(c10::Device device);

}  // namespace dslaunch::runtime::device
