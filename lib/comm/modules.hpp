// The backends' modules, each loaded at the first call. Any thread. They throw what LoadedModule throws.
#pragma once
#include "base/loaded_module.hpp"

namespace dslaunch::comm {

const LoadedModule& gloo_module();
const LoadedModule& cuda_module();  // loads LibTorch's CUDA half too

}  // namespace dslaunch::comm
