// TORCHELASTIC_ERROR_FILE: where a Python program under torch's `record` leaves its exception. One private directory
// per node, removed with the agent. One thread.
#pragma once
#include <optional>
#include <string>

#include "launch/records/private_dir.hpp"

namespace dslaunch::launch {

class ErrorFiles {
 public:
  // Creates the directory under TMPDIR; if that fails there are no error files and the ranks run without them.
  explicit ErrorFiles(const std::string& job_id);

  std::string path_of(int rank) const;  // empty: there are no error files
  // The first line of the exception's text in the rank's file; empty when the rank wrote none.
  std::string message_of(int rank) const;

 private:
  std::optional<PrivateDir> dir_;
};

// The first line of the message in torch's JSON; empty when `text` has another format.
std::string message_in_error_file(const std::string& text);

}  // namespace dslaunch::launch
