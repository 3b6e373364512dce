#include <ATen/ATen.h>

#include "runtime/sharding/gradient_sink.hpp"

namespace dslaunch::runtime {
namespace {

class DeviceGradients final : public GradientSink {
 public:
  DeviceGradients(std::vector<Range> own_ranges, std::span<SpanState> state, at::ScalarType sum_dtype,
                  at::Device device)
      : own_ranges_(std::move(own_ranges)),
        state_(state),
        sum_options_(at::TensorOptions().device(device).dtype(sum_dtype)),
        sums_(own_ranges_.size()) {}

  void prepare(int group, const at::Tensor& room) override {
    at::Tensor& sum = sums_[group];
    if (!sum.defined()) sum = room.defined() ? room : at::empty({own_ranges_[group].size()}, sum_options_);
  }

  void deliver(int group, const at::Tensor& slice, bool is_first, bool /*is_last*/) override {
    const at::Tensor& sum = sums_[group];
    if (slice.data_ptr() == sum.data_ptr()) return;  // it was added up in the room
    is_first ? sum.copy_(slice) : sum.add_(slice);
  }

  void finish() override {
    std::vector<at::Tensor> gradients(sums_.size());  // by group
    for (auto& [span, arrays] : state_) {
      if (arrays.is_offloaded) continue;  // of another sink
      at::Tensor& gradient = gradients[span.flat_group];
      if (!gradient.defined()) gradient = gradient_of(span.flat_group);
      const int64_t offset = span.range.begin - own_ranges_[span.flat_group].begin;
      arrays.gradient = gradient.narrow(0, offset, span.numel());
    }
  }

  void release() override {
    for (auto& sum : sums_) sum = at::Tensor();
    for (auto& [span, arrays] : state_) arrays.gradient = at::Tensor();
  }

 private:
  at::Tensor gradient_of(int group) const {
    if (sums_[group].defined()) return sums_[group].to(at::kFloat);
    return at::zeros({own_ranges_[group].size()}, sum_options_.dtype(at::kFloat));
  }

  const std::vector<Range> own_ranges_;
  const std::span<SpanState> state_;
  const at::TensorOptions sum_options_;
  std::vector<at::Tensor> sums_;  // by group; undefined until its first slice
};

}  // namespace

std::unique_ptr<GradientSink> make_device_gradients(std::vector<Range> own_ranges, std::span<SpanState> state,
                                                    at::ScalarType sum_dtype, at::Device device) {
  return std::make_unique<DeviceGradients>(std::move(own_ranges), state, sum_dtype, device);
}

}  // namespace dslaunch::runtime
