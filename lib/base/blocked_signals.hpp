// Blocks every signal in the calling thread while the object lives. Threads created meanwhile inherit the mask and keep
// it for all of their lives. Only the threads that read signals should receive them: in any other thread, such as one
// of a library, a signal would take its default action and end the process.
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
