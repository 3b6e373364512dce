// Limits a directory to one job at a time: a process holds a lock on a file in the directory for as long as it lives.
// The kernel releases the lock however the holder dies. One thread.
// .lock              the run directory: the launcher, or rank 0 of a job whose launcher does not hold it
// .rank_0.lock       the run directory of an `exec`, beside its launcher's .lock: rank 0 of that same job
// .checkpoints.lock  a checkpoint directory that a config names: the rank that creates and removes checkpoints there
#pragma once
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch {

class DirectoryLock {
 public:
  DirectoryLock() = default;
  DirectoryLock(DirectoryLock&&) = default;
  DirectoryLock& operator=(DirectoryLock&&) = default;
  // Removes the file.
  ~DirectoryLock();

  // Writes `owner` to the file, for a process that finds the directory locked. Throws SystemError(73) when the file
  // cannot be created. A file that a dead job of another user left behind only needs to be readable. On a file system
  // without locks the result holds nothing. The error is the `owner` text of the present owner.
  static Result<DirectoryLock> try_lock(const std::string& file, const std::string& owner);
  // Takes the lock of a run directory. Throws UserError(73) with the present owner's description when there is one. If
  // the owner is the launcher of `own_job`, of which this process is a rank, takes the ranks' own lock instead.
  static DirectoryLock lock_run_directory(const std::string& directory, const std::string& owner,
                                          const std::string& own_job = {});
  // Whether a job holds the lock of this run directory. Creates nothing; false too where it cannot be found out.
  static bool is_held(const std::string& directory);
  // The `owner` text of a launcher.
  static std::string launcher_of(const std::string& job_id) { return "job " + job_id; }

 private:
  DirectoryLock(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  UniqueFd file_;
  std::string path_;
};

}  // namespace dslaunch
