// The small files of the launching host that a job's ranks read, kept on this host for as long as the job lives: one
// private folder, gone with this object. One thread.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace dslaunch::launch {

class JobFiles {
 public:
  // `files`: path on the launching host -> content. Throws UserError(73) when they cannot be written here.
  JobFiles(const std::string& job_id, const std::map<std::string, std::string>& files);
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

  // The words with each path of such a file replaced by its copy's.
  std::vector<std::string> localize(std::vector<std::string> words) const;

 private:
  std::string folder_;
  std::map<std::string, std::string> copies_;  // path there -> path here
};

}  // namespace dslaunch::launch
