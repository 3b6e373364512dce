// Recognizes arrivals of a signal that belong together. One Ctrl-C or one scheduler signal may arrive several times:
// `timeout -s INT` signals a launcher and then its whole process group, `scancel -s USR2` all nodes. One thread.
#pragma once
#include <map>

#include "base/deadline.hpp"

namespace dslaunch::launch {

// Where a signal arrived; null: in this process.
using SignalSource = const void*;
using SignalTime = Deadline::Clock::time_point;

// SIGINT. A new request is a repeat at the same place, not immediately, or an arrival at another place some time later.
class InterruptDeduplicator {
 public:
  // Records an arrival. True for a new signal, false for a repeat of the last one.
  bool take(SignalSource from, SignalTime now = Deadline::Clock::now());
  // The signal from `from` has been acted upon. In a late loop its remaining copies are already waiting, so the
  // interval counts from now.
  void handled(SignalSource from, SignalTime now = Deadline::Clock::now()) { sources_[from] = now; }

 private:
  std::map<SignalSource, SignalTime> sources_;  // where the last signal arrived
  SignalTime began_;
};

// For a signal passed on to the ranks (SIGUSR1, SIGUSR2), which may be sent often: the place with the most arrivals has
// received all of them.
class UserSignalDeduplicator {
 public:
  // As above.
  bool take(SignalSource from, SignalTime now = Deadline::Clock::now());

 private:
  std::map<SignalSource, int> counts_;
  int most_ = 0;
  SignalTime newest_;
};

}  // namespace dslaunch::launch
