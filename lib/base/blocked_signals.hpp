// Holds every signal back from the calling thread while it lives, and so from threads that are made meanwhile for all
// of their lives: a thread starts with its maker's mask. Signals are for the threads that read them; one that came to
// another thread, a library's perhaps, would have its usual effect there, which is the end of the process.
#pragma once
#include <csignal>

namespace dslaunch {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace dslaunch
