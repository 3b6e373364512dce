// The backends' modules, each opened at the first call. Any thread. They throw what LoadedModule throws.
#pragma once
#include "base/loaded_module.hpp"

namespace dslaunch::comm {

const LoadedModule& gloo_module();
const LoadedModule& cuda_module();  // brings LibTorch's CUDA half with it

}  // namespace dslaunch::comm
