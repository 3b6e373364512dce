// Which arrivals of a signal are one. One press of Ctrl-C, one word of a scheduler may arrive several times: `timeout
// -s INT` tells a launcher and then its whole group, `scancel -s USR2` all nodes. One thread.
#pragma once
#include <map>

#include "base/deadline.hpp"

namespace dslaunch::launch {

// Where a signal has arrived; null: in this process.
using SignalPlace = const void*;
using SignalTime = Deadline::Clock::time_point;

// SIGINT. Asking for more takes the same place saying it again, and not at once, or another place a while later.
class InterruptEchoes {
 public:
  // One has arrived. True where it is a new one, false where it belongs to the last.
  bool take(SignalPlace from, SignalTime now = Deadline::Clock::now());
  // The one from there has been acted upon. A loop that is late finds the rest of them waiting: what counts is the
  // time since then.
  void acted_upon(SignalPlace from, SignalTime now = Deadline::Clock::now()) { places_[from] = now; }

 private:
  std::map<SignalPlace, SignalTime> places_;  // that the last one has come from
  SignalTime began_;
};

// A signal that is the ranks' own (SIGUSR1, SIGUSR2) and may be sent often: the place that has heard of most has heard
// of all.
class UserSignalEchoes {
 public:
  // As above.
  bool take(SignalPlace from, SignalTime now = Deadline::Clock::now());

 private:
  std::map<SignalPlace, int> counts_;
  int most_ = 0;
  SignalTime newest_;
};

}  // namespace dslaunch::launch
