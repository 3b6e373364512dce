#include <ATen/ATen.h>

#include "runtime/sharding/gradient_sink.hpp"

namespace dslaunch::runtime {
namespace {

class DeviceGradients final : public GradientSink {
 public:
  DeviceGradients(DeviceGradientOptions options, std::span<SpanState> state)
      : options_(std::move(options)), state_(state), sums_(options_.own_ranges.size()) {}

  void prepare(int group, const at::Tensor& room) override {
    Sum& sum = sums_[group];
    if (!sum.values.defined()) {
      sum.values = room.defined() ? room : allocate(group, options_.dtypes[group]);
    } else if (sum.values.scalar_type() != options_.sum_dtype) {  // its unit is called again in its only micro batch
      sum.first = std::exchange(sum.values, allocate(group, options_.sum_dtype));
    }
  }

  void deliver(int group, const at::Tensor& slice, bool is_first, bool /*is_last*/) override {
    Sum& sum = sums_[group];
    if (slice.data_ptr() == sum.values.data_ptr()) return;  // it was added up in the room
    if (is_first) {
      sum.values.copy_(slice);
      return;
    }
    if (sum.first.defined()) {
      sum.values.copy_(sum.first);
      retired_.push_back(std::exchange(sum.first, {}));
    }
    sum.values.add_(slice);
  }

  void finish() override {
    retired_.clear();
    for (auto& [span, arrays] : state_) {
      if (arrays.is_offloaded) continue;  // of another sink
      at::Tensor& values = sums_[span.flat_group].values;
      if (!values.defined()) values = allocate(span.flat_group, options_.dtypes[span.flat_group]).zero_();
      const int64_t offset = span.range.begin - options_.own_ranges[span.flat_group].begin;
      arrays.gradient = values.narrow(0, offset, span.numel());
    }
  }

  void release() override {
    for (Sum& sum : sums_) sum = {};
    retired_.clear();
    for (auto& [span, arrays] : state_) arrays.gradient = at::Tensor();
  }

 private:
  struct Sum {          // of a group
    at::Tensor values;  // undefined until its first slice
    at::Tensor first;   // its first slice, until `values`, in the dtype of sums, has it
  };

  at::Tensor allocate(int group, at::ScalarType dtype) const {
    return at::empty({options_.own_ranges[group].size()}, at::TensorOptions().device(options_.device).dtype(dtype));
  }

  const DeviceGradientOptions options_;
  const std::span<SpanState> state_;
  std::vector<Sum> sums_;            // by group
  std::vector<at::Tensor> retired_;  // first slices which work on a side stream may still read
};

}  // namespace

std::unique_ptr<GradientSink> make_device_gradients(DeviceGradientOptions options, std::span<SpanState> state) {
  return std::make_unique<DeviceGradients>(std::move(options), state);
}

}  // namespace dslaunch::runtime
