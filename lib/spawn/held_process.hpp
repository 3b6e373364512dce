// Identifies a process so that it cannot be confused with a later one of the same pid: by a pidfd, or, where the system
// provides none (the seccomp profile of an older Docker, an old kernel, no descriptor left), by the process's start
// time, which is checked before every signal. Any thread.
#pragma once
#include <sys/types.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::spawn {

class HeldProcess {
 public:
  // nullopt when the process has ended, whether reaped or not.
  static std::optional<HeldProcess> hold(pid_t pid);

  const ports::ProcessIdentity& identity() const { return identity_; }
  bool has_ended() const;
  // On false, errno gives the reason; ESRCH: the process is gone.
  bool signal(int number) const;

  // For a poll loop: readable once the process has ended; -1: no pidfd, so call has_ended() again at look_again().
  int fd() const { return fd_.get(); }
  Deadline look_again() const;

 private:
  HeldProcess(ports::ProcessIdentity identity, UniqueFd fd) : identity_(identity), fd_(std::move(fd)) {}

  ports::ProcessIdentity identity_;
  UniqueFd fd_;
};

// Waits until one of the processes has ended, or the deadline passes.
void wait_for_an_end(const std::vector<const HeldProcess*>& processes, Deadline deadline);

}  // namespace dslaunch::spawn
