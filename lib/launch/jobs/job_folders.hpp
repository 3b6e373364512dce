// The folders of this user's jobs, and finding a job among them by what a person types. Any thread; several launchers
// may be at work in the same folder.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/jobs/job_record.hpp"

namespace dslaunch::launch {

// ${XDG_STATE_HOME:-$HOME/.local/state}/dslaunch/jobs. A relative XDG_STATE_HOME does not count, as its specification
// says; without HOME the user's entry in passwd does. Empty when there is neither. Makes nothing.
std::string jobs_root();

// Paths inside one job's folder.
struct JobFolder {
  std::string path;  // empty: the job has none
  std::string record_file() const { return path + "/job.json"; }
  std::string console_file() const { return path + "/console.log"; }
  std::string pid_file() const { return path + "/launcher.pid"; }
  bool there() const { return !path.empty(); }
};

// A job of this name has a folder of this user's already.
bool has_job_folder(const std::string& job_id);

// A fresh folder for a new job. Throws SystemError(73), also when a job of this name has one already.
JobFolder make_job_folder(const std::string& root, const std::string& job_id);

// What the record and its supervisor's presence come to.
enum class Condition {
  kLiving,
  kEnded,
  kLost,       // no end was written down and the supervisor is gone
  kElsewhere,  // supervised by another machine that shares this folder, and not ended
};

struct KnownJob {
  JobFolder folder;
  JobRecord record;
  Condition condition = Condition::kLost;
};

// A folder with a record that says nothing: damaged, another user's, of a newer dslaunch.
struct UnreadableJob {
  JobFolder folder;
  std::string trouble;  // why, as the end of a sentence
};

// Newest first. What is no job's folder is passed over; `unreadable`, where wanted, gets those that cannot be told.
std::vector<KnownJob> list_jobs(const std::string& root, std::vector<UnreadableJob>* unreadable = nullptr);
// The job of this id; empty: there is no record of it here that can be read.
std::optional<KnownJob> job_on_record(const std::string& root, const std::string& job_id);
// The same job as it is now.
KnownJob look_again(const KnownJob& job);

// By its id, an unambiguous beginning of it, or "last" for the newest. Throws UserError: 66 for no such job (with the
// nearest names), 64 for a beginning that several have.
KnownJob find_job(const std::vector<KnownJob>& jobs, const std::string& name);

// Removes the folders of ended and lost jobs beyond the newest `most`, and of those that ended longer than `age` ago;
// never one that lives or may live. `now`: seconds since 1970.
void prune_jobs(const std::string& root, size_t most, std::chrono::seconds age, int64_t now);

}  // namespace dslaunch::launch
