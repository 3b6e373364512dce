// Signs of life while the one thread that turns the loop is busy with something else: from a thread of their own.
#pragma once
#include <chrono>
#include <thread>

#include "launch/channel/channel.hpp"

namespace dslaunch::launch {

class Heartbeats {
 public:
  // Until this object is gone the channel is its own. An interval of zero: none are wanted.
  Heartbeats(Channel& channel, std::chrono::milliseconds interval);
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

 private:
  std::jthread thread_;  // told to stop and joined at the end
};

}  // namespace dslaunch::launch
