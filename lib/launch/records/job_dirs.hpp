// The directories of this user's jobs, and the lookup of a job by the name that a person types. Any thread; several
// launchers may use the same directory at the same time.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

// ${XDG_STATE_HOME:-$HOME/.local/state}/dslaunch/jobs. A relative XDG_STATE_HOME is ignored, as its specification
// requires; without HOME, the home directory in passwd is used. Empty when there is neither. Creates nothing.
std::string jobs_root();

// Paths inside one job's directory.
struct JobDir {
  std::string path;  // empty: the job has none
  std::string record_file() const { return path + "/job.json"; }
  std::string console_file() const { return path + "/console.log"; }
  std::string pid_file() const { return path + "/launcher.pid"; }
  bool there() const { return !path.empty(); }
};

// This user already has a job directory of this name.
bool has_job_dir(const std::string& job_id);

// Creates the directory of a new job. Throws SystemError(73), also when a job of this name already has one.
JobDir make_job_dir(const std::string& root, const std::string& job_id);

// The condition that follows from the record and from whether its supervisor is present.
enum class Condition {
  kLiving,
  kEnded,
  kLost,       // no end is recorded and the supervisor is gone
  kElsewhere,  // supervised by another machine that shares this directory, and not ended
};

struct KnownJob {
  JobDir dir;
  JobRecord record;
  Condition condition = Condition::kLost;
};

// A directory whose record cannot be used: damaged, another user's, or of a newer dslaunch.
struct UnreadableJob {
  JobDir dir;
  std::string error;  // the reason, as the end of a sentence
};

// Newest first. Skips directories that are not a job's; `unreadable`, if not null, gets the jobs whose record cannot be
// used.
std::vector<KnownJob> list_jobs(const std::string& root, std::vector<UnreadableJob>* unreadable = nullptr);
// The job of this id; empty: there is no readable record of it here.
std::optional<KnownJob> job_on_record(const std::string& root, const std::string& job_id);
// Reads the job's current state again.
KnownJob reload_job(const KnownJob& job);

// Finds a job by its id, its name (of several jobs of that name the newest), its run directory (likewise), an
// unambiguous prefix of its id, or "last" for the newest. Throws UserError: 66 for no such job (with the nearest
// names), 64 for a prefix of several jobs.
KnownJob find_job(const std::vector<KnownJob>& jobs, const std::string& name);

// Removes the directories of ended and lost jobs beyond the newest `most`, and of those that ended longer than `age`
// ago; never that of a job that is or may be alive. `now`: seconds since 1970.
void prune_jobs(const std::string& root, size_t most, std::chrono::seconds age, int64_t now);

}  // namespace dslaunch::launch
