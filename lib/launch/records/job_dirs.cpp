#include "launch/records/job_dirs.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <tuple>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/small_file.hpp"
#include "launch/records/private_files.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNamesShown = 5;

std::string absolute_path_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string home_dir() {
  if (std::string home = absolute_path_in("HOME"); !home.empty()) return home;
  const passwd* entry = ::getpwuid(::geteuid());
  return entry != nullptr && entry->pw_dir[0] == '/' ? entry->pw_dir : "";
}

Condition condition_of(const JobRecord& record) {
  if (record.end) return Condition::kEnded;
  switch (presence_of(record.supervisor)) {
    case Presence::kAlive:
      return Condition::kLiving;
    case Presence::kElsewhere:
      return Condition::kElsewhere;
    case Presence::kGone:
      break;
  }
  return Condition::kLost;
}

// A record of this user's; else the reason that there is none, as the end of a sentence.
std::variant<JobRecord, std::string> read_record(const JobDir& dir) {
  SmallFile file = read_plain_file(dir.record_file());
  if (!file.outcome.ok()) return file.outcome.error();
  struct stat found {};
  bool foreign = ::stat(dir.record_file().c_str(), &found) == 0 && found.st_uid != ::geteuid();
  // The owner of a record decides which processes `stop` signals.
  if (foreign && ::geteuid() != 0) return "it belongs to another user";
  if (auto record = record_from_json(file.bytes)) return std::move(*record);
  return "it is not a record that this version of dslaunch can read";
}

std::variant<KnownJob, std::string> read_job(const std::string& path) {
  KnownJob job;
  job.dir.path = path;
  auto record = read_record(job.dir);
  if (auto* error = std::get_if<std::string>(&record)) return std::move(*error);
  job.record = std::move(std::get<JobRecord>(record));
  job.condition = condition_of(job.record);
  // The job may have ended between reading the record and checking the supervisor.
  if (job.condition == Condition::kLost) {
    record = read_record(job.dir);
    if (auto* again = std::get_if<JobRecord>(&record); again != nullptr && again->end) {
      job.record = std::move(*again);
      job.condition = Condition::kEnded;
    }
  }
  return job;
}

bool has_record(const std::string& path) {
  struct stat found {};
  return ::lstat(JobDir{path}.record_file().c_str(), &found) == 0 || errno != ENOENT;
}

std::vector<std::string> ids_of(const std::vector<KnownJob>& jobs) {
  std::vector<std::string> ids;
  for (const auto& job : jobs) ids.push_back(job.record.job_id);
  return ids;
}

std::vector<std::string> ids_and_names_of(const std::vector<KnownJob>& jobs) {
  std::vector<std::string> all;
  for (const auto& job : jobs) {
    const std::string& name = job.record.name;
    if (!name.empty() && std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
  const auto ids = ids_of(jobs);
  all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

std::string some_of(std::vector<std::string> ids) {
  size_t all = ids.size();
  if (all > kMaxNamesShown) ids.resize(kMaxNamesShown);
  return fmt::format("{}{}", fmt::join(ids, ", "), all > kMaxNamesShown ? ", ..." : "");
}

constexpr int64_t kDay = 86400;

// Job directories without a record, from launchers that died before they could write one. A directory whose record
// cannot be read, now or by this version, is a job's all the same and is kept.
void remove_nameless(const std::string& root, int64_t now) {
  std::error_code error;
  std::vector<fs::path> nameless;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    struct stat found;
    bool old = ::stat(entry->path().c_str(), &found) == 0 && found.st_mtime < now - kDay;
    if (old && S_ISDIR(found.st_mode) && !has_record(entry->path().string())) nameless.push_back(entry->path());
  }
  for (const auto& dir : nameless) fs::remove_all(dir, error);
}

bool over_since(const KnownJob& job, int64_t then) {
  return (job.record.end ? job.record.end->when : job.record.started) < then;
}

}  // namespace

std::string jobs_root() {
  std::string state = absolute_path_in("XDG_STATE_HOME");
  if (state.empty()) {
    std::string home = home_dir();
    if (home.empty()) return {};
    state = home + "/.local/state";
  }
  return state + "/dslaunch/jobs";
}

bool has_job_dir(const std::string& job_id) {
  struct stat found {};
  const std::string root = jobs_root();
  return !root.empty() && ::lstat((root + "/" + job_id).c_str(), &found) == 0;
}

JobDir make_job_dir(const std::string& root, const std::string& job_id) {
  if (root.empty()) {
    throw UserError(ExitCode::kCannotCreate, "cannot choose the job directory: neither HOME nor XDG_STATE_HOME is set");
  }
  make_private_dir(root);
  JobDir dir{root + "/" + job_id};
  if (::mkdir(dir.path.c_str(), 0700) != 0) {
    throw SystemError("mkdir", dir.path, errno, ExitCode::kCannotCreate);
  }
  return dir;
}

std::vector<KnownJob> list_jobs(const std::string& root, std::vector<UnreadableJob>* unreadable) {
  std::vector<KnownJob> jobs;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!has_record(path)) continue;
    auto job = read_job(path);
    if (auto* known = std::get_if<KnownJob>(&job)) jobs.push_back(std::move(*known));
    if (auto* reason = std::get_if<std::string>(&job); reason != nullptr && unreadable != nullptr) {
      unreadable->push_back({JobDir{path}, std::move(*reason)});
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const KnownJob& a, const KnownJob& b) {
    auto age = [](const JobRecord& record) {
      return std::tie(record.started, record.supervisor.start_ticks, record.job_id);
    };
    return age(a.record) > age(b.record);
  });
  return jobs;
}

std::optional<KnownJob> job_on_record(const std::string& root, const std::string& job_id) {
  // The id may come from an untrusted environment.
  const bool is_name = !job_id.empty() && job_id[0] != '.' && job_id.find('/') == std::string::npos;
  if (root.empty() || !is_name) return std::nullopt;
  auto job = read_job(root + "/" + job_id);
  auto* known = std::get_if<KnownJob>(&job);
  return known != nullptr && known->record.job_id == job_id ? std::optional(std::move(*known)) : std::nullopt;
}

KnownJob reload_job(const KnownJob& job) {
  auto again = read_job(job.dir.path);
  auto* known = std::get_if<KnownJob>(&again);
  return known != nullptr ? std::move(*known) : job;
}

KnownJob find_job(const std::vector<KnownJob>& jobs, const std::string& name) {
  if (jobs.empty()) {
    throw UserError(ExitCode::kNoInput, fmt::format("no job '{}': this user has no jobs on record (see 'dslaunch jobs "
                                                    "--all'; directory of jobs: {})",
                                                    name, jobs_root()));
  }
  if (name == "last") return jobs.front();
  const auto is_called = [&](const KnownJob& job) { return job.record.job_id == name || job.record.name == name; };
  const auto called = name.empty() ? jobs.end() : std::find_if(jobs.begin(), jobs.end(), is_called);
  if (called != jobs.end()) return *called;
  const auto ran_there = std::find_if(jobs.begin(), jobs.end(), [&](const KnownJob& job) {
    std::error_code missing;
    return !job.record.run_dir.empty() && fs::equivalent(job.record.run_dir, name, missing);
  });
  if (ran_there != jobs.end()) return *ran_there;
  std::vector<KnownJob> matching;
  for (const auto& job : jobs) {
    if (!name.empty() && job.record.job_id.starts_with(name)) matching.push_back(job);
  }
  if (matching.size() == 1) return matching.front();
  if (!matching.empty()) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("{} jobs begin with '{}': {}; give more characters, or 'last' for the newest job",
                                matching.size(), name, some_of(ids_of(matching))));
  }
  std::string hint = did_you_mean(name, ids_and_names_of(jobs), 3);
  throw UserError(ExitCode::kNoInput, fmt::format("no job '{}'{}; 'dslaunch jobs --all' lists them", name, hint));
}

void prune_jobs(const std::string& root, size_t most, std::chrono::seconds age, int64_t now) {
  size_t num_over = 0;
  for (const auto& job : list_jobs(root)) {
    if (job.condition == Condition::kLiving || job.condition == Condition::kElsewhere) continue;
    bool too_many = ++num_over > most;
    std::error_code ignored;
    if (too_many || over_since(job, now - age.count())) fs::remove_all(job.dir.path, ignored);
  }
  remove_nameless(root, now);
}

}  // namespace dslaunch::launch
