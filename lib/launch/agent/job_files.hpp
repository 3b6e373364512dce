// The small files of the launching host that a job's ranks read, copied to this host for the lifetime of the job: one
// private directory, removed with this object. One thread.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/private_dir.hpp"

namespace dslaunch::launch {

class JobFiles {
 public:
  // `files`: path on the launching host -> content. Throws UserError(73) when the copies cannot be written.
  JobFiles(const std::string& job_id, const std::map<std::string, std::string>& files);

  // The words, with each path of such a file replaced by the path of its copy.
  std::vector<std::string> localize(std::vector<std::string> args) const;

 private:
  std::optional<PrivateDir> dir_;              // empty: there are no files
  std::map<std::string, std::string> copies_;  // path on the launching host -> path here
};

}  // namespace dslaunch::launch
