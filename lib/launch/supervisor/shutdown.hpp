// The shutdown of an attempt when nothing runs any longer: closes the links to the agents, and sends the last messages
// to nodes and readers. One thread.
#pragma once
#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "launch/supervisor/attempt.hpp"

namespace dslaunch::launch {

class Shutdown {
 public:
  explicit Shutdown(Attempt& attempt) : attempt_(attempt) {}

  // Except for links to externally started nodes, which wait for dismiss(). Cleans up after agents that could not.
  void close_links();
  // The supervisor cannot continue.
  void shut_down_after_error(const JobEnded& job_ended) noexcept;

  // Sends the last message to externally started nodes.
  void dismiss(const JobEnded& job_ended);
  // Returns once readers and files have everything, or have had their time.
  void drain_output();
  // A request to stop that came after the attempt or while a failure was ending it, also while output was drained.
  StopReason late_reason();
  // There is no further attempt: from now on no signal changes the outcome.
  void ignore_signals() { attempt_.signals.ignore_from_now_on(); }

 private:
  std::vector<PlannedNode> close_started_links();
  void record_stuck_here(const std::vector<PlannedNode>& nodes, const spawn::StuckProcess& process);
  std::chrono::milliseconds file_timeout() const;
  void poll_output(bool awaits_readers, Deadline due);
  void report_pending_files();

  Attempt& attempt_;
  // A reader accepted none of the final output within its timeout: readers are not waited for any longer.
  bool readers_are_over_ = false;
  Deadline files_due_ = Deadline::never();  // how long to wait for stalled files
};

}  // namespace dslaunch::launch
