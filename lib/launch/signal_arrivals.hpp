// Which arrivals of a signal are one. One press of Ctrl-C, one word of a scheduler may arrive several times: `timeout
// -s INT` tells a launcher and then its whole group, `scancel -s USR2` all nodes. Asking for more takes the same place
// saying it again, and not at once, or another place a while later. A user's signal may be sent often: there the place
// that has heard of most has heard of all. An object a signal. One thread.
#pragma once
#include <map>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class SignalArrivals {
 public:
  explicit SignalArrivals(bool is_users = false) : is_users_(is_users) {}

  using Place = const void*;  // null: this process
  using Time = Deadline::Clock::time_point;

  // One has arrived. True where it is a new one, false where it belongs to the last.
  bool take(Place from, Time now = Deadline::Clock::now());
  // The one from there has been acted upon. A loop that is late finds the rest of them waiting: what counts is the
  // time since then.
  void acted_upon(Place from, Time now = Deadline::Clock::now()) { places_[from] = now; }

 private:
  bool take_users(Place from, Time now);

  std::map<Place, Time> places_;  // that the last one has come from
  Time began_;
  std::map<Place, int> counts_;  // of a user's signal
  int most_ = 0;
  bool is_users_;
};

}  // namespace dslaunch::launch
