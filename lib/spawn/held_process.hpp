// A process that cannot be mistaken for a later one with the same number: held by descriptor, or, where the system
// gives none for processes (the seccomp profile of an older Docker, an old kernel, no descriptor left), by the time of
// its start, which is looked at before every signal. Any thread.
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
  // Empty when it has ended, whether reaped or not.
  static std::optional<HeldProcess> hold(pid_t pid);

  const ports::ProcessIdentity& identity() const { return identity_; }
  bool has_ended() const;
  // False: errno says why; ESRCH: it is gone.
  bool signal(int number) const;

  // For a loop over poll: readable once it has ended; -1: there is none, so ask has_ended() again at look_again().
  int fd() const { return fd_.get(); }
  Deadline look_again() const;

 private:
  HeldProcess(ports::ProcessIdentity identity, UniqueFd fd) : identity_(identity), fd_(std::move(fd)) {}

  ports::ProcessIdentity identity_;
  UniqueFd fd_;
};

// Until one of them has ended, or the deadline passes.
void wait_for_an_end(const std::vector<const HeldProcess*>& processes, Deadline deadline);

}  // namespace dslaunch::spawn
