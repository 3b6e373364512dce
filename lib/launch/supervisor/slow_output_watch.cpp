#include "launch/supervisor/slow_output_watch.hpp"

#include <algorithm>

namespace dslaunch::launch {

void SlowOutputWatch::check() {
  if (attempt_.lifecycle.end_not_begun()) return;
  // While everything is killed, the ranks' remaining output is small enough to be kept for the files.
  const bool killing = attempt_.lifecycle.state() == JobState::kKilling;
  if (!attempt_.output.readers_keep_up()) attempt_.output.drop_slow_readers(killing);
  check_files();
}

Deadline SlowOutputWatch::next_due() const {
  const bool awaits_readers = !attempt_.lifecycle.end_not_begun() && !attempt_.output.readers_keep_up();
  return awaits_readers ? std::min(files_progress_due_, attempt_.output.readers_deadline()) : files_progress_due_;
}

// Files without room block the ranks, which then cannot save; files that make progress may take their time.
void SlowOutputWatch::check_files() {
  const size_t pending = attempt_.options.live->files().num_pending_bytes();
  const bool has_room = attempt_.options.live->files().has_room();
  if (!has_room && files_progress_due_.passed()) attempt_.output.drop_files();
  if (has_room || files_progress_due_.passed()) {
    files_progress_due_ = Deadline::never();
  } else if (files_progress_due_.is_never() || pending < files_pending_) {
    files_progress_due_ = Deadline::after(attempt_.reader_timeout());
  }
  files_pending_ = pending;
}

}  // namespace dslaunch::launch
