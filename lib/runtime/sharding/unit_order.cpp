#include "runtime/sharding/unit_order.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime {

const char* to_string(UnitEvent::Kind kind) {
  switch (kind) {
    case UnitEvent::Kind::kForward:
      return "forward";
    case UnitEvent::Kind::kBackward:
      return "backward";
    case UnitEvent::Kind::kReduce:
      return "gradients";
  }
  return "?";
}

void UnitOrder::begin_pass() {
  next_ = 0;
  if (!is_recorded_) events_.clear();
}

void UnitOrder::end_pass() {
  is_recorded_ = true;
}

bool UnitOrder::is_ahead(UnitEvent event) const {
  const auto rest = ahead();
  return std::find(rest.begin(), rest.end(), event) != rest.end();
}

UnitEvent UnitOrder::advance() {
  DSL_CHECK(next_ < events_.size(), "the order has an event ahead");
  return events_[next_++];
}

void UnitOrder::insert(UnitEvent event) {
  events_.insert(events_.begin() + static_cast<std::ptrdiff_t>(next_), event);
  next_ += 1;
}

}  // namespace dslaunch::runtime
