// Handles signals while a job is on record without a supervisor: its nodes are gathered, its programs are copied. A
// name lookup or an unreachable file system cannot be interrupted there, so a thread that waits for nothing else ends
// the process on a signal that asks for an end. Without a guard, or before it exists, such a signal waits for the next
// supervisor.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "launch/event_loop/signal_inbox.hpp"

namespace dslaunch::launch {

class RestartSignalGuard {
 public:
  // `end` puts the end on record and returns the exit code, or nothing for a signal that does not ask for an end; it
  // runs on the guard's thread, while the owner is busy elsewhere or waits in the destructor. `signals` and `end`
  // outlive this. Throws SystemError when the system cannot create a thread.
  RestartSignalGuard(SignalInbox& signals, std::function<std::optional<int>(int signal)> end);
  // Returns once the guard takes no more signals.
  ~RestartSignalGuard();
  RestartSignalGuard(const RestartSignalGuard&) = delete;
  RestartSignalGuard& operator=(const RestartSignalGuard&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dslaunch::launch
