// A thread for the files of a job. Any of them may stand still for minutes: a file server that is away, a disk in
// trouble. The supervisor's loop, which must not (its agents would miss its heartbeats), asks for a piece of work and
// goes on; the pieces are done one after the other, in the order asked for.
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
  // Returns a line about what went wrong, or nothing. Runs on the thread, must not throw, and owns all that it touches:
  // a piece that stands still outlives everything else.
  using Work = std::function<std::string()>;

  // How long the end of a job waits for files that stand still.
  static constexpr std::chrono::seconds kTimeout{60};

  // Throws SystemError when the system refuses a thread.
  FileThread();
  // What has not been begun is left undone.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // All of these by one thread at a time, the owner's; wait() also by another one meanwhile. `num_bytes`: what the work
  // keeps in memory until it is done.
  void ask(size_t num_bytes, Work work);
  // Is everything done?
  bool idle() const;
  size_t num_pending_bytes() const;
  // With no room left those who bring more have to wait.
  bool has_room() const { return num_pending_bytes() < kMaxPendingBytes; }
  // What went wrong since the last call.
  std::vector<std::string> take_troubles();
  // Until everything is done. False: not before the deadline.
  bool wait(Deadline deadline);

  // Readable when something went wrong, and, once asked for, when everything is done; until take_troubles().
  int fd() const;
  void wake_when_idle();

 private:
  static constexpr size_t kMaxPendingBytes = 8U << 20;

  struct Shared;
  static void work_through(Shared& shared);
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive us
};

}  // namespace dslaunch::launch
