#include "launch/supervisor/signal_echoes.hpp"

namespace dslaunch::launch {

using namespace std::chrono_literals;

// Nobody presses twice in this time.
constexpr auto kOnePlace = 50ms;
// From the first node that a scheduler signals to the last.
constexpr auto kAllPlaces = 2000ms;

bool InterruptEchoes::take(SignalPlace from, SignalTime now) {
  const auto place = places_.find(from);
  if (place != places_.end() && now - place->second < kOnePlace) return false;
  const bool is_another_place = place == places_.end() && !places_.empty();
  if (!is_another_place || now - began_ >= kAllPlaces) {
    places_.clear();
    began_ = now;
  }
  places_[from] = now;
  return places_.size() == 1;
}

// The counts of several places are comparable only while the last new signal is recent.
bool UserSignalEchoes::take(SignalPlace from, SignalTime now) {
  if (now - newest_ >= kAllPlaces) {
    counts_.clear();
    most_ = 0;
  }
  if (++counts_[from] <= most_) return false;
  most_ = counts_[from];
  newest_ = now;
  return true;
}

}  // namespace dslaunch::launch
