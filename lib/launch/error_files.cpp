#include "launch/error_files.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/small_file.hpp"

namespace dslaunch::launch {

static constexpr std::string_view kPrefix = "dslaunch-", kRandomPart = "-XXXXXX";

std::string private_folder_prefix(const std::string& job_id) {
  return std::string(kPrefix) + job_id + "-";
}

static UniqueFd open_folder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

ErrorFiles::ErrorFiles(const std::string& job_id) {
  std::error_code error;
  auto parent = std::filesystem::temp_directory_path(error);
  if (error) return;
  std::string pattern = (parent / (private_folder_prefix(job_id) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) return;
  folder_ = pattern;
  lock_ = open_folder(folder_);
  if (lock_.valid()) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

ErrorFiles::~ErrorFiles() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string ErrorFiles::path_of(int rank) const {
  return folder_.empty() ? std::string() : folder_ + "/" + std::to_string(rank) + ".json";
}

std::string ErrorFiles::message_of(int rank) const {
  return message_in_error_file(read_plain_file(path_of(rank)).bytes);
}

void remove_private_folders(const std::string& job_id) {
  std::error_code error;
  std::vector<std::filesystem::path> left;
  std::filesystem::directory_iterator entry(std::filesystem::temp_directory_path(error), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(private_folder_prefix(job_id))) left.push_back(entry->path());
  }
  for (const auto& folder : left) std::filesystem::remove_all(folder, error);
}

std::optional<std::string> job_of_error_folder(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() <= kPrefix.size() + kRandomPart.size()) return std::nullopt;
  size_t end = name.size() - kRandomPart.size();
  if (name[end] != '-') return std::nullopt;
  return name.substr(kPrefix.size(), end - kPrefix.size());
}

static bool holds_error_files_only(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator entry(path, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const auto& file = entry->path();
    std::string stem = file.stem().string();
    bool number = !stem.empty() && stem.find_first_not_of("0123456789") == std::string::npos;
    if (!number || file.extension() != ".json") return false;
  }
  return !error;
}

bool error_folder_is_abandoned(const std::string& path) {
  if (!holds_error_files_only(path)) return false;
  UniqueFd folder = open_folder(path);
  return folder.valid() && ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0;
}

std::string message_in_error_file(const std::string& text) {
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("message")) return {};
  const auto& outer = document["message"];
  const auto& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return {};
  auto whole = message.get<std::string>();
  return whole.substr(0, whole.find('\n'));
}

}  // namespace dslaunch::launch
