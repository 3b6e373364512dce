// What a pointer points to, for kernels that take several types.
#pragma once

namespace dslaunch::kernels {

enum class ElementType { kFloat32, kBFloat16, kFloat16 };

}  // namespace dslaunch::kernels
