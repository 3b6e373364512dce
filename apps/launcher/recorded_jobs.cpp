#include "recorded_jobs.hpp"

#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
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

}  // namespace dslaunch::launcher
