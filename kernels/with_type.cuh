// Maps an element type known at run time to a kernel's template parameter.
#pragma once
#include <cuda_runtime_api.h>

#include <type_traits>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// Calls `launch` with the type as a std::integral_constant.
template <class Launch>
cudaError_t with_type(ElementType type, Launch launch) {
  switch (type) {
    case ElementType::kFloat32:
      return launch(std::integral_constant<ElementType, ElementType::kFloat32>());
    case ElementType::kBFloat16:
      return launch(std::integral_constant<ElementType, ElementType::kBFloat16>());
    case ElementType::kFloat16:
      return launch(std::integral_constant<ElementType, ElementType::kFloat16>());
  }
  return cudaErrorInvalidValue;
}

// Likewise with the type of the low-precision copy of an optimizer's kernel: kFloat32 without a copy (null).
template <class Launch>
cudaError_t with_low_precision(const void* copy, ElementType type, Launch launch) {
  if (copy == nullptr) return with_type(ElementType::kFloat32, launch);
  return type == ElementType::kFloat32 ? cudaErrorInvalidValue : with_type(type, launch);
}

}  // namespace dslaunch::kernels
