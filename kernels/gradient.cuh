// Gradients of any element type as floats, for the kernels of optimizers. Device only, except gradient_span.
#pragma once
#include "kernels/eight_elements.cuh"
#include "kernels/launch_shape.cuh"

namespace dslaunch::kernels {

// A gradient is read once: its loads leave the cache to other data.
template <ElementType kType>
class GradientReader {
 public:
  // `head`: of the VectorSpan of the fp32 arrays beside it. All arguments are uniform over the grid.
  __device__ GradientReader(const void* values, size_t head)
      : values_(values),
        head_(head),
        is_wide_(reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(values) + head) % 8 == 0) {}

  __device__ float element(size_t i) const { return load_element<kType>(values_, i); }

  // The span's vector i.
  __device__ float4 vector(size_t i) const {
    if constexpr (kType == ElementType::kFloat32) {
      return __ldcs(reinterpret_cast<const float4*>(static_cast<const float*>(values_) + head_) + i);
    } else {
      const auto* first = static_cast<const uint16_t*>(values_) + head_ + 4 * i;
      if (is_wide_) {
        const uint2 words = __ldcs(reinterpret_cast<const uint2*>(first));
        return make_float4(float_of<kType>(words.x), float_of<kType>(words.x >> 16), float_of<kType>(words.y),
                           float_of<kType>(words.y >> 16));
      }
      return make_float4(float_of<kType>(first[0]), float_of<kType>(first[1]), float_of<kType>(first[2]),
                         float_of<kType>(first[3]));
    }
  }

 private:
  const void* values_;
  size_t head_;
  bool is_wide_;  // one access for a vector of 16-bit elements
};

// Of the fp32 arrays `pointers` without the gradient, which comes last: an fp32 one has to be aligned like them.
inline VectorSpan gradient_span(size_t count, const void* const* pointers, int num_pointers, ElementType gradient) {
  return vector_span(count, pointers, gradient == ElementType::kFloat32 ? num_pointers : num_pointers - 1);
}

}  // namespace dslaunch::kernels
