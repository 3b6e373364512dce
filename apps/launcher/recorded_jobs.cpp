#include "recorded_jobs.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/printable.hpp"

namespace dslaunch::launcher {

std::vector<launch::KnownJob> recorded_jobs() {
  std::vector<launch::UnreadableJob> unreadable;
  const std::string root = launch::jobs_root();
  // The directory was created by another user (sudo): "no jobs" would be a wrong answer.
  if (::access(root.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
    throw UserError(
        ExitCode::kPermission,
        fmt::format("cannot read the directory of this user's jobs: {}: {}; 'ls -ld' shows the owners of it and of the "
                    "directories above it, and XDG_STATE_HOME chooses another one",
                    printable(root), describe_errno(EACCES)));
  }
  auto jobs = launch::list_jobs(root, &unreadable);
  for (const auto& job : unreadable) {
    log::warning("cannot read {}: {}; the job is not shown (remove the directory when none of its processes runs)",
                 printable(job.dir.record_file()), job.error);
  }
  return jobs;
}

static launch::KnownJob job_or_path(const std::string& word) try {
  return launch::find_job(recorded_jobs(), word);
} catch (const UserError& error) {
  if (error.code() != ExitCode::kNoInput) throw;
  throw UserError(ExitCode::kNoInput, fmt::format("'{}' does not exist here{}, and there is {}", word,
                                                  did_you_mean_file(word), error.what()));
}

std::string run_directory(const std::string& word) {
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored) || word.find('/') != std::string::npos) return word;
  const launch::JobRecord record = job_or_path(word).record;
  if (!record.run_dir.empty()) return record.run_dir;
  const std::string& job = record.label();
  throw UserError(ExitCode::kBadInput,
                  fmt::format("job {} has no run directory: an 'exec' has one with --run_dir. 'dslaunch jobs {}' and "
                              "'dslaunch logs {}' show what is on record",
                              job, job, job));
}

}  // namespace dslaunch::launcher
