// TORCHELASTIC_ERROR_FILE: where a Python program under torch's `record` leaves its exception. One private folder a
// node, gone when the agent is. One thread.
#pragma once
#include <optional>
#include <string>

#include "launch/private_folder.hpp"

namespace dslaunch::launch {

class ErrorFiles {
 public:
  // Makes the folder under TMPDIR; where that fails there are no error files and ranks run without.
  explicit ErrorFiles(const std::string& job_id);

  std::string path_of(int rank) const;  // empty: there are none
  // The exception's text in the rank's file, its first line; empty when it wrote none.
  std::string message_of(int rank) const;

 private:
  std::optional<PrivateFolder> folder_;
};

// The first line of the message in torch's JSON; empty when it is something else.
std::string message_in_error_file(const std::string& text);

}  // namespace dslaunch::launch
