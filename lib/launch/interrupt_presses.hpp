// Which SIGINTs are one press of Ctrl-C. One press may arrive several times: `timeout -s INT` tells a launcher and then
// its whole group, a scheduler tells all nodes. Asking for more takes the same place saying it again, and not at once,
// or another place a while later. One thread.
#pragma once
#include <map>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class InterruptPresses {
 public:
  using Place = const void*;  // null: this process
  using Time = Deadline::Clock::time_point;

  // One has arrived. True where it begins a press, false where it belongs to the last one.
  bool take(Place from, Time now = Deadline::Clock::now());
  // The one from there has been acted upon. A loop that is late finds the rest of its press waiting: what counts is the
  // time since then.
  void acted_upon(Place from, Time now = Deadline::Clock::now()) { places_[from] = now; }

 private:
  std::map<Place, Time> places_;  // that this press has come from
  Time began_;
};

}  // namespace dslaunch::launch
