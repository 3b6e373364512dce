#include "launch/signal_arrivals.hpp"

namespace dslaunch::launch {

using namespace std::chrono_literals;

// Nobody presses twice in this time.
constexpr auto kOnePlace = 50ms;
// From the first node that a scheduler tells to the last.
constexpr auto kAllPlaces = 2000ms;

bool SignalArrivals::take(Place from, Time now) {
  const auto place = places_.find(from);
  if (place != places_.end() && !is_users_ && now - place->second < kOnePlace) return false;
  const bool is_another_place = place == places_.end() && !places_.empty();
  if (!is_another_place || now - began_ >= kAllPlaces) {
    places_.clear();
    began_ = now;
  }
  places_[from] = now;
  return places_.size() == 1;
}

}  // namespace dslaunch::launch
