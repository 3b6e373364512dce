// A folder of a job under TMPDIR for this user alone, gone with this object: where ranks find or leave small files on
// their host. It is locked while it is in use, so whoever can take the lock knows that it is abandoned, however its
// owner ended. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class PrivateFolder {
 public:
  // Throws UserError(73).
  explicit PrivateFolder(const std::string& job_id);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

  // Files in it begin with a number; nothing else is put there. Throws UserError(73).
  void write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
  UniqueFd lock_;
};

// The job in the name of a private folder; empty: it is none.
std::optional<std::string> job_of_private_folder(const std::string& name);
// Whether the folder holds nothing but what is put into private folders, and the agent that made it is gone.
bool private_folder_is_abandoned(const std::string& path);

// All private folders of this user here whose agents are gone, of whatever job. A large TMPDIR takes a while.
void remove_abandoned_private_folders();

// After an agent was killed and could not clear its private folders away: all of the job's.
void remove_private_folders(const std::string& job_id);

}  // namespace dslaunch::launch
