#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "runtime/device/random_state.hpp"
#include "runtime/model/recomputation/recomputed_call.hpp"

namespace dslaunch::runtime::model::recomputation {

struct ForwardContext::Autocast {
  struct OfDevice {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<OfDevice> devices;
  bool cache;

  explicit Autocast(at::Device device) : cache(at::autocast::is_autocast_cache_enabled()) {
    add(at::kCPU);
    if (!device.is_cpu()) add(device.type());
  }
  void apply(bool with_cache) const {
    for (const auto& one : devices) {
      at::autocast::set_autocast_enabled(one.type, one.enabled);
      at::autocast::set_autocast_dtype(one.type, one.dtype);
    }
    at::autocast::set_autocast_cache_enabled(with_cache);
  }

 private:
  void add(at::DeviceType type) {
    devices.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  }
};

ForwardContext::ForwardContext(const std::vector<ParameterLocation>& state, at::Device device, Keep keep)
    : state_(state),
      device_(device),
      random_(device::save_random_state(device)),
      autocast_(std::make_unique<Autocast>(device)) {
  at::NoGradGuard no_grad;
  for (const auto& location : state_) {
    const auto& value = location.object->getSlot(location.slot);
    values_.push_back(keep == Keep::kCopy ? value.deepcopy() : value);
  }
}

ForwardContext::ForwardContext(const std::vector<ParameterLocation>& state, at::Device device)
    : ForwardContext(state, device, Keep::kCopy) {}

ForwardContext::~ForwardContext() = default;

void ForwardContext::apply() const {
  device::restore_random_state(random_, device_);
  for (size_t i = 0; i < state_.size(); ++i) state_[i].object->setSlot(state_[i].slot, values_[i]);
}

ForwardContext::Restore::Restore(ForwardContext& saved)
    : saved_(saved), current_(new ForwardContext(saved.state_, saved.device_, Keep::kReference)) {
  saved_.apply();
  saved_.autocast_->apply(/*with_cache=*/false);  // its cached casts would be meaningless after this pass
}

ForwardContext::Restore::~Restore() {
  current_->apply();
  current_->autocast_->apply(current_->autocast_->cache);
}

}  // namespace dslaunch::runtime::model::recomputation
