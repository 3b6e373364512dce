#include "runtime/engine/step/shape_buckets.hpp"

#include <algorithm>

namespace dslaunch::runtime::engine::step {

ShapeBuckets::Plan ShapeBuckets::plan(const ShapeKey& key) {
  num_steps_ += 1;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].key != key) continue;
    slots_[i].last_step = num_steps_;
    return {Action::kReplay, i};
  }
  if (!is_capturing_) return {};
  const bool is_known = captures_first_ || take_known(key);
  const auto slot = is_known ? free_slot() : std::nullopt;
  captures_first_ = false;
  if (!slot) {
    known_.push_front(key);
    if (known_.size() > kMaxKnown) known_.pop_back();
    return {};
  }
  if (*slot == slots_.size()) slots_.emplace_back();
  slots_[*slot] = {key, num_steps_};
  last_slot_ = *slot;
  return {Action::kCapture, *slot};
}

void ShapeBuckets::stop_capturing() {
  is_capturing_ = false;
  slots_[last_slot_].key.reset();
}

// The graph that was not used for the longest time makes room.
std::optional<size_t> ShapeBuckets::free_slot() const {
  if (slots_.size() < kMaxGraphs) return slots_.size();
  const auto oldest = std::min_element(
      slots_.begin(), slots_.end(), [](const Slot& one, const Slot& other) { return one.last_step < other.last_step; });
  if (num_steps_ - oldest->last_step < kMinIdleSteps) return std::nullopt;
  return static_cast<size_t>(oldest - slots_.begin());
}

bool ShapeBuckets::take_known(const ShapeKey& key) {
  const auto found = std::find(known_.begin(), known_.end(), key);
  if (found == known_.end()) return false;
  known_.erase(found);
  return true;
}

}  // namespace dslaunch::runtime::engine::step
