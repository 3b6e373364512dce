// Signals as a descriptor to poll instead of handlers: the loops of launcher and agent see them in order with
// everything else. Blocks them for the calling thread; make it before any other thread starts.
#pragma once
#include <initializer_list>
#include <optional>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class SignalInbox {
 public:
  // A SIGHUP that the parent told us to ignore (nohup) stays ignored. SIGPIPE is ignored from here on.
  explicit SignalInbox(std::initializer_list<int> signals);

  int fd() const { return fd_.get(); }
  // The next signal that has come; empty when there is none now.
  std::optional<int> take();

 private:
  UniqueFd fd_;
};

}  // namespace dslaunch::launch
