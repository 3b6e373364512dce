#include "runtime/optim/moments.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime::optim {

void allocate_moments(const FlatOptimizer& optimizer, SpanState& state,
                      const std::function<at::Tensor(int64_t numel)>& zeros) {
  constexpr int64_t kPerBoundary = 16 / sizeof(float);
  const at::Tensor& master = state.arrays.master;
  const auto address = reinterpret_cast<uintptr_t>(master.data_ptr()) / sizeof(float);
  const auto lead = static_cast<int64_t>(address % kPerBoundary);
  const int group = state.span.optimizer_group;
  const size_t count = optimizer.moment_names(group).size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t numel = master.numel() + lead;
    const at::Tensor whole = zeros ? zeros(numel) : at::zeros({numel}, master.options());
    if (const double initial = optimizer.initial_moment(group, i); initial != 0.0) whole.fill_(initial);
    state.arrays.moments.push_back(whole.narrow(0, lead, master.numel()));
  }
}

}  // namespace dslaunch::runtime::optim
