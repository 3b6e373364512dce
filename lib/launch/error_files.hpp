// TORCHELASTIC_ERROR_FILE: where a Python program under torch's `record` leaves its exception. One private folder a
// node, gone when the agent is. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class ErrorFiles {
 public:
  // Makes the folder under TMPDIR; where that fails there are no error files and ranks run without.
  explicit ErrorFiles(const std::string& job_id);
  ~ErrorFiles();
  ErrorFiles(const ErrorFiles&) = delete;
  ErrorFiles& operator=(const ErrorFiles&) = delete;

  std::string path_of(int rank) const;  // empty: there are none
  // The exception's text in the rank's file, its first line; empty when it wrote none.
  std::string message_of(int rank) const;

 private:
  std::string folder_;
  UniqueFd lock_;  // held while we live: who can take it knows that the folder is abandoned
};

// The job in the name of a folder of error files; empty: it is none.
std::optional<std::string> job_of_error_folder(const std::string& name);
// Whether the folder holds nothing but error files and the agent that made it is gone.
bool error_folder_is_abandoned(const std::string& path);

// What the names of a job's private folders under TMPDIR begin with.
std::string private_folder_prefix(const std::string& job_id);

// After an agent was killed and could not clear its private folders away: all of the job's.
void remove_private_folders(const std::string& job_id);

// The first line of the message in torch's JSON; empty when it is something else.
std::string message_in_error_file(const std::string& text);

}  // namespace dslaunch::launch
