// One job at a time in a folder: a lock that a process holds for as long as it lives, in a file of that folder. The
// kernel lets go of it however its holder dies. One thread.
//   .lock              the run folder: the launcher, or rank 0 of a job whose launcher does not hold it
//   .rank_0.lock       the run folder of an `exec`, beside its launcher's .lock: rank 0 of that very job
//   .checkpoints.lock  a folder of checkpoints that a config names: the rank that makes and removes checkpoints there
#pragma once
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch {

class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = default;
  // Takes the file away.
  ~FolderLock();

  // `owner` stands in the file, for whoever finds the folder taken. Throws SystemError(73) when the file cannot be
  // made. One that another user's dead job left behind needs to be readable only. A file system without locks has none
  // to take.
  struct Answer;
  static Answer try_take(const std::string& file, const std::string& owner);
  // The lock of a run folder. Throws UserError(73) with the words of the present owner when there is one. Where that is
  // the launcher of `own_job`, whose rank this process is, the lock is the ranks' own.
  static FolderLock take_run_folder(const std::string& folder, const std::string& owner,
                                    const std::string& own_job = {});
  // A launcher's words for itself.
  static std::string launcher_of(const std::string& job_id) { return "job " + job_id; }

 private:
  FolderLock(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  UniqueFd file_;
  std::string path_;
};

struct FolderLock::Answer {
  FolderLock lock;
  std::string holder;  // not empty: the present owner, and `lock` holds nothing
};

}  // namespace dslaunch
