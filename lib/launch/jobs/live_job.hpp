// The state of a job as published through its directory and its socket for the commands `jobs`, `logs`, `attach` and
// `stop`: maintained by the supervisor process from before the first agent until after the last restart. No error here
// ends a job: a record that cannot be written is a warning. One thread at a time: the supervisor's, and between two
// attempts that of RestartSignalGuard. Owns the threads for the job's files.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/jobs/console_log.hpp"
#include "launch/jobs/job_socket.hpp"
#include "launch/jobs/job_states.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/records/job_dirs.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::launch {

class LiveJob {
 public:
  // `dir`: the job's own, already created; without one (a warning was given) nothing is stored and all functions
  // below do nothing.
  LiveJob(const LaunchPlan& plan, JobDir dir);
  ~LiveJob();

  // Other processes can find the job: its first record was written.
  bool on_record() const { return on_record_; }
  // The process that waits for the job's start (--detach) gets a report through `starter`; not valid: there is none.
  void report_start_to(UniqueFd starter) { starter_ = std::move(starter); }
  // Stores the terminal's output; null without a directory.
  ConsoleLog* console() { return console_.get(); }
  // The thread that writes records, console and logs, in the order of events.
  FileThread& files() { return files_; }
  // The thread that reads the run's files: another one, since a directory that stalls must not delay writes elsewhere.
  FileThread& reads() { return reads_; }
  // Files stall, now or still: closing one, or removing another one beside it, would block.
  bool has_stalled_files() const { return !files_.idle() || !reads_.idle(); }
  // Warnings since the last call, one per line.
  std::vector<std::string> take_errors();

  // In the supervisor's loop. Never blocks.
  void add_to(PollSet& polls);
  std::vector<StopRequest> serve(const PollSet& polls);

  // Requests for the ranks' stacks since the last call; the supervisor answers each.
  std::vector<JobSocket::PendingStacksRequest> take_stacks_requests();
  // The clients that have requested the ranks' status since the last call; the supervisor answers each.
  std::vector<uint64_t> take_rank_status_requests();
  void answer(uint64_t client, const JobAnswer& answer);

  // Events of the job, reported by the supervisor. A restart may have fewer hosts: on_attempt.
  void on_attempt(const LaunchPlan& plan);
  void on_state(JobState state);
  void on_rank_started(int rank, long pid);
  void on_rank_ended(int rank, const spawn::ExitCause& cause, bool stopped_by_us);
  void on_stuck(const StuckOnHost& stuck);
  // Call once, when no process of the job is left. Clients that read get everything; clients that do not read delay the
  // call by at most 2 s, and stalled file writes by at most `file_timeout`.
  void on_end(int exit_code, const std::string& first_cause,
              std::chrono::milliseconds file_timeout = FileThread::kTimeout);

 private:
  struct RankView {
    std::string host;
    long pid = -1;
    std::optional<spawn::ExitCause> cause;
    bool stopped_by_us = false;
    std::optional<spawn::StuckProcess> stuck;
  };

  void write_record();
  bool record_errors();
  std::string status() const;
  void notify_starter(int exit_code);

  JobDir dir_;
  JobRecord record_;
  FileThread files_, reads_;
  std::unique_ptr<ConsoleLog> console_;
  std::unique_ptr<JobSocket> socket_;
  UniqueFd starter_;
  std::vector<RankView> ranks_;  // by rank
  int num_started_ = 0;          // in this attempt
  bool on_record_ = false;
  std::vector<std::string> errors_;
};

}  // namespace dslaunch::launch
