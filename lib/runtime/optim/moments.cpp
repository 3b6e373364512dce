#include "runtime/optim/moments.hpp"

#include <ATen/ATen.h>

#include <algorithm>

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

// Files are zero at first.
void write_initial_moments(const FlatOptimizer& optimizer, const SpanState& state) {
  constexpr int64_t kChunk = 1 << 20;
  const int group = state.span.optimizer_group;
  const int64_t numel = state.span.numel();
  for (size_t i = 0; i < optimizer.moment_names(group).size(); ++i) {
    const double initial = optimizer.initial_moment(group, i);
    if (initial == 0.0) continue;
    const at::Tensor values = at::full({std::min(kChunk, numel)}, initial, at::kFloat);
    for (int64_t begin = 0; begin < numel; begin += kChunk) {
      const int64_t count = std::min(kChunk, numel - begin);
      state.arrays.stored->write(StoredArrays::kMaster + 1 + i, begin, values.narrow(0, 0, count));
    }
  }
}

}  // namespace dslaunch::runtime::optim
