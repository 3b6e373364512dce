// While a job ends, neither a slow reader nor a stalled file may delay it: ranks that wait for one cannot save. One
// thread.
#pragma once
#include <cstddef>

#include "base/deadline.hpp"
#include "launch/supervisor/attempt.hpp"

namespace dslaunch::launch {

class SlowOutputWatch {
 public:
  explicit SlowOutputWatch(Attempt& attempt) : attempt_(attempt) {}

  // Drops output for what has accepted nothing within its time.
  void check();
  // When to call check() again.
  Deadline next_due() const;

 private:
  void check_files();

  Attempt& attempt_;
  // While the files have no room: until when some of their pending bytes must be written.
  Deadline files_progress_due_ = Deadline::never();
  size_t files_pending_ = 0;
};

}  // namespace dslaunch::launch
