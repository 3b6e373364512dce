// Signals as a descriptor to poll instead of handlers: the loops of launcher and agent see them in order with
// everything else. Blocks them for the calling thread; make it before any other thread starts. Inboxes nest: a signal
// that the inner one has not taken when it goes waits for the outer one, and where there is none has its usual effect.
#pragma once
#include <csignal>
#include <initializer_list>
#include <optional>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class SignalInbox {
 public:
  // A SIGHUP that the parent told us to ignore (nohup) stays ignored. SIGPIPE is ignored from here on.
  explicit SignalInbox(std::initializer_list<int> signals);
  // Lets go of the signals; one that came and was not taken has its usual effect now. SIGUSR1 and SIGUSR2 are for a
  // job and would end us: they stay blocked, and wait for the next inbox.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // The outcome stands: no signal changes it any more, until the end of the process.
  void ignore_from_now_on();

  int fd() const { return fd_.get(); }
  // The next signal that has come, SIGTERM before others; empty when there is none now.
  std::optional<int> take();

 private:
  sigset_t taken_, before_;
  UniqueFd fd_;
};

}  // namespace dslaunch::launch
