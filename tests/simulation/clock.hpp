// The simulated time, and what happens when. One thread.
#pragma once
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "simulation/random.hpp"

namespace dslaunch::simulation {

// Since the simulation's start.
using Time = Duration;

class Clock {
 public:
  Time now() const { return now_; }
  // Events of one moment happen in the order in which they were added.
  void at(Time when, std::function<void()> event) {
    events_.push({std::max(when, now_), num_added_++, std::move(event)});
  }
  void after(Duration delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }
  // The next event happens, and time advances to it. False: there is none before `end`.
  bool step(Time end) {
    if (events_.empty() || events_.top().when > end) return false;
    // top() is const: the event must be moved out of it before it runs, since it may add others.
    Event next = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = next.when;
    next.run();
    return true;
  }
  uint64_t num_added() const { return num_added_; }

 private:
  struct Event {
    Time when;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  Time now_{0};
  uint64_t num_added_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace dslaunch::simulation
