#include "runtime/sharding/gradient_reduction.hpp"

namespace dslaunch::runtime {

void set_gradient(std::span<SpanState> state, int group, int64_t begin, const at::Tensor& gradient) {
  for (auto& [span, arrays] : state) {
    if (span.flat_group == group) arrays.gradient = gradient.narrow(0, span.range.begin - begin, span.numel());
  }
}

}  // namespace dslaunch::runtime
