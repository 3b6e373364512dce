// While a job is on record and no supervisor looks after it: its nodes are gathered, its programs are copied. A look-up
// of a name or a file system that is away cannot be cut short there, so a signal that asks for an end ends the process
// itself, from a thread that waits for nothing else. Without one, or before it, such a signal waits for the next
// supervisor.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "launch/signal_inbox.hpp"

namespace dslaunch::launch {

class RestartSignalGuard {
 public:
  // `end` puts the end on record and returns the exit code, or nothing for a signal that asks for none; it runs on the
  // thread, while the owner is busy elsewhere or waits in the destructor. `signals` and `end` outlive this. Throws
  // SystemError when the system refuses a thread.
  RestartSignalGuard(SignalInbox& signals, std::function<std::optional<int>(int signal)> end);
  // Returns once no signal is taken any more.
  ~RestartSignalGuard();
  RestartSignalGuard(const RestartSignalGuard&) = delete;
  RestartSignalGuard& operator=(const RestartSignalGuard&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dslaunch::launch
