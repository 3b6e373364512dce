// Waits that kill() can interrupt, and the exceptions that end a link's thread.
#pragma once
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::spawn {

// Thrown and caught on the link's thread.
struct ConnectError {
  LinkFailure failure;
  bool dropped = false;  // by the server before the handshake: worth another attempt
};
struct Interrupted {};  // kill() was called

class Interrupt {
 public:
  Interrupt() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_.valid()) throw SystemError("eventfd", "for a link");
  }
  // Any thread.
  void set() const {
    uint64_t one = 1;
    [[maybe_unused]] auto written = ::write(event_.get(), &one, sizeof one);
  }
  int fd() const { return event_.get(); }

  // Waits until one of the descriptors is ready or the deadline passes (false). Throws Interrupted.
  bool wait(std::vector<pollfd>& polls, Deadline deadline) const {
    polls.push_back({event_.get(), POLLIN, 0});
    int milliseconds = deadline.poll_timeout();
    int ready = ::poll(polls.data(), polls.size(), milliseconds);
    bool cut = polls.back().revents != 0;
    polls.pop_back();
    if (cut) throw Interrupted{};
    if (ready < 0) {
      for (auto& poll : polls) poll.revents = 0;
    }
    return ready != 0;
  }
  bool wait_for(int fd, short events, Deadline deadline) const {
    std::vector<pollfd> polls;
    if (fd >= 0) polls.push_back({fd, events, 0});
    return wait(polls, deadline);
  }

 private:
  UniqueFd event_;
};

}  // namespace dslaunch::spawn
