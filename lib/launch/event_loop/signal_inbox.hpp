// Signals as a descriptor to poll instead of handlers: the loops of launcher and agent see them in order with all else.
// Blocks them for the calling thread; create it before any other thread starts. Inboxes nest: a signal that the inner
// one leaves untaken waits for the outer one, or has its default effect if there is none.
#pragma once
#include <csignal>
#include <initializer_list>
#include <optional>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class SignalInbox {
 public:
  // A SIGHUP that the parent set to be ignored (nohup) stays ignored. SIGPIPE is ignored from here on.
  explicit SignalInbox(std::initializer_list<int> signals);
  // Restores the signals; one that is pending now has its default effect. SIGUSR1 and SIGUSR2 are meant for a job and
  // would end this process: they stay blocked, and wait for the next inbox.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // The outcome is final: no signal changes it until the end of the process.
  void ignore_from_now_on();

  int fd() const { return fd_.get(); }
  // The next pending signal, SIGTERM before others; empty when there is none now.
  std::optional<int> take();

 private:
  sigset_t taken_, before_;
  UniqueFd fd_;
};

}  // namespace dslaunch::launch
