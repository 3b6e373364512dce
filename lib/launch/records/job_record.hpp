// The record in a job's directory (job.json): the job's identity, its supervisor, and how it ended. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_kind.hpp"
#include "launch/records/process_on_host.hpp"
#include "launch/records/start_command.hpp"
#include "launch/records/stuck_on_host.hpp"

namespace dslaunch::launch {

struct JobEnd {
  int exit_code = 0;
  int64_t when = 0;         // seconds since 1970
  std::string first_cause;  // one line; empty after a success
  bool operator==(const JobEnd&) const = default;
};

struct RecordedHost {
  std::string host;  // as the user wrote it
  int num_ranks = 0;
  bool operator==(const RecordedHost&) const = default;
};

struct JobRecord {
  std::string job_id;
  std::string name;  // --name, or that of the run that the job continues; empty: none
  JobKind kind = JobKind::kExec;
  std::vector<std::string> command;  // as given to every rank
  StartCommand start;
  std::vector<RecordedHost> hosts;  // in launch order
  std::string cwd;
  std::string run_dir;   // empty: none
  std::string log_root;  // the directory whose logs/ holds HOST.RANK.log
  bool detached = false;
  int64_t started = 0;  // seconds since 1970
  ProcessOnHost supervisor;
  std::string socket;  // path; empty: it has none
  std::string state;   // as name_of(JobState) says
  int restart_count = 0;
  // Which parts of the job's console and logs are lost, and why: for jobs without a terminal to report it on. A few
  // lines.
  std::vector<std::string> errors;
  std::vector<StuckOnHost> stuck;  // processes that SIGKILL did not end: each is listed once, even if it has ended
                                   // since
  std::optional<JobEnd> end;

  int world_size() const;
  // What the commands on jobs call it in messages: its name, else its id.
  const std::string& label() const { return name.empty() ? job_id : name; }
  // Empty when the job has no such rank.
  std::string host_of(int rank) const;
  bool operator==(const JobRecord&) const = default;
};

// ROOT/logs/HOST.RANK.log, where `root` is a job's log_root.
std::string log_path(const std::string& root, const std::string& host, int rank);

std::string record_to_json(const JobRecord& record);
// Empty when the text is not a job record.
std::optional<JobRecord> record_from_json(const std::string& text);

// "2026-01-31T17:45:02Z" for seconds since 1970.
std::string utc_text(int64_t seconds);

}  // namespace dslaunch::launch
