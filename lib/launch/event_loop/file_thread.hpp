// A thread for the files of a job. Any file may stall for minutes: an unreachable file server, a failing disk. The
// supervisor's loop must not block (its agents would miss its heartbeats): it queues work here and continues; the
// thread does the work in the order queued.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class FileThread {
 public:
  // Returns a line about an error, or nothing. Runs on the thread, must not throw, and owns all that it touches:
  // stalled work outlives everything else.
  using Work = std::function<std::string()>;

  // How long the end of a job waits for stalled files.
  static constexpr std::chrono::seconds kTimeout{60};

  // Throws SystemError when the system cannot create a thread.
  FileThread();
  // Drops work that has not begun.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // All of these by one thread at a time, the owner's; meanwhile another thread may call wait() too. `num_bytes`: the
  // memory that the work holds until it is done.
  void submit(size_t num_bytes, Work work);
  // Whether all work is done.
  bool idle() const;
  size_t num_pending_bytes() const;
  // Without room, producers of more work have to wait.
  bool has_room() const { return num_pending_bytes() < kMaxPendingBytes; }
  // The errors since the last call.
  std::vector<std::string> take_errors();
  // Until all work is done. False: not before the deadline.
  bool wait(Deadline deadline);

  // Readable after an error and, after wake_when_idle(), when all work is done; until take_errors().
  int fd() const;
  void wake_when_idle();

 private:
  static constexpr size_t kMaxPendingBytes = 8U << 20;

  struct Shared;
  static void work_through(Shared& shared);
  std::shared_ptr<Shared> shared_;  // shared with the thread, which may outlive this object
};

}  // namespace dslaunch::launch
