#include "runtime/precision/autocast_scope.hpp"

#include <ATen/autocast_mode.h>

namespace dslaunch::runtime::precision {

AutocastScope::AutocastScope(at::Device device, std::optional<at::ScalarType> dtype)
    : device_(device.type()), is_on_(dtype.has_value()) {
  if (!is_on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_caching_ = at::autocast::is_autocast_cache_enabled();
  dtype_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *dtype);
  // The cache keeps casts of leaf parameters; ours are outputs of the gather and change places, so it would only keep
  // memory alive.
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!is_on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(was_caching_);
}

}  // namespace dslaunch::runtime::precision
