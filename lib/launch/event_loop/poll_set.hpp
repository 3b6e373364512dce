// The descriptors of one iteration of an event loop. A descriptor of -1 is ignored.
#pragma once
#include <poll.h>

#include <vector>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class PollSet {
 public:
  // Returns the index for ready().
  size_t add(int fd, short events) {
    polls_.push_back({fd, events, 0});
    return polls_.size() - 1;
  }
  // Until something is ready or the deadline passes.
  void wait(Deadline deadline) {
    int milliseconds = deadline.poll_timeout();
    if (::poll(polls_.data(), polls_.size(), milliseconds) < 0) {
      for (auto& poll : polls_) poll.revents = 0;
    }
  }
  bool ready(size_t index) const { return polls_[index].revents != 0; }

 private:
  std::vector<pollfd> polls_;
};

}  // namespace dslaunch::launch
