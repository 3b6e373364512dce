#include "launch/job_files.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/error_files.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot keep the job's files in {}: {}; TMPDIR names another folder", path, why));
}

std::string private_folder(const std::string& job_id) {
  std::error_code error;
  fs::path base = fs::temp_directory_path(error);
  if (error) refuse("TMPDIR", error.message());
  std::string name = (base / (private_folder_prefix(job_id) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) refuse(base.string(), describe_errno(errno));
  return name;
}

}  // namespace

JobFiles::JobFiles(const std::string& job_id, const std::map<std::string, std::string>& files) {
  if (files.empty()) return;
  folder_ = private_folder(job_id);
  for (const auto& [path, content] : files) {
    // Numbered, since two of them may have one name; the ending tells the reader what it is.
    std::string copy = fmt::format("{}/{}-{}", folder_, copies_.size(), fs::path(path).filename().string());
    std::ofstream file(copy, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) refuse(folder_, describe_errno(errno));
    copies_[path] = copy;
  }
}

JobFiles::~JobFiles() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::vector<std::string> JobFiles::localize(std::vector<std::string> words) const {
  for (auto& word : words) {
    if (auto copy = copies_.find(word); copy != copies_.end()) word = copy->second;
  }
  return words;
}

}  // namespace dslaunch::launch
