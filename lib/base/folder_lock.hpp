// One job at a time in a run folder: a lock that the launcher, or rank 0 of a job that has none of ours, holds for as
// long as it lives, in the file .lock of that folder. The kernel lets go of it however its holder dies. One thread.
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

  // `owner` stands in the file, for whoever finds the folder taken. Throws UserError(73) with the words of the present
  // owner when there is one, SystemError(73) when the file cannot be made. A file system without locks has none to
  // take.
  static FolderLock take(const std::string& folder, const std::string& owner);

 private:
  FolderLock(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  UniqueFd file_;
  std::string path_;
};

}  // namespace dslaunch
