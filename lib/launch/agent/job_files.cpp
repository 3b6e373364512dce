#include "launch/agent/job_files.hpp"

#include <algorithm>
#include <filesystem>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

// Numbered, since two files may have the same name; the extension tells the reader the file type. A full name of
// maximum length would leave no room for the number.
std::string name_of_copy(size_t number, const std::string& path) {
  constexpr size_t kMaxBytes = 100;
  const std::string name = std::filesystem::path(path).filename().string();
  return fmt::format("{}-{}", number, name.substr(name.size() - std::min(name.size(), kMaxBytes)));
}

}  // namespace

JobFiles::JobFiles(const std::string& job_id, const std::map<std::string, std::string>& files) {
  if (files.empty()) return;
  dir_.emplace(job_id);
  for (const auto& [path, content] : files) {
    const std::string name = name_of_copy(copies_.size(), path);
    dir_->write(name, content);
    copies_[path] = dir_->path() + "/" + name;
  }
}

std::vector<std::string> JobFiles::localize(std::vector<std::string> args) const {
  for (auto& arg : args) {
    if (auto copy = copies_.find(arg); copy != copies_.end()) arg = copy->second;
  }
  return args;
}

}  // namespace dslaunch::launch
