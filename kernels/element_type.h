// The element type behind a pointer, for kernels that take several types.
#pragma once

namespace dslaunch::kernels {

enum class ElementType { kFloat32, kBFloat16, kFloat16 };

}  // namespace dslaunch::kernels
