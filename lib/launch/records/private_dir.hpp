// A job's directory under TMPDIR for this user alone, removed with this object: for small files that ranks read or
// write on their host. It is locked while in use, so a process that can take the lock knows that the directory is
// abandoned, no matter how its owner ended. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class PrivateDir {
 public:
  // Throws UserError(73).
  explicit PrivateDir(const std::string& job_id);
  ~PrivateDir();
  PrivateDir(const PrivateDir&) = delete;
  PrivateDir& operator=(const PrivateDir&) = delete;

  const std::string& path() const { return path_; }

  // Names of files in it start with a number; it holds no other files. Throws UserError(73).
  void write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
  UniqueFd lock_;
};

// The job in the name of a private directory; empty: `name` is not one.
std::optional<std::string> job_of_private_dir(const std::string& name);
// Whether the directory holds only files that belong in a private directory, and the agent that made it is gone.
bool private_dir_is_abandoned(const std::string& path);

// All private directories of this user on this host whose agents are gone, of any job. A large TMPDIR takes a while.
void remove_abandoned_private_dirs();

// After an agent was killed and could not remove its private directories: all of the job's.
void remove_private_dirs(const std::string& job_id);

}  // namespace dslaunch::launch
