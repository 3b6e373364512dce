#include "launch/error_files.hpp"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace dslaunch::launch {

static std::string folder_prefix(const std::string& job_id) {
  return "dslaunch-" + job_id + "-";
}

ErrorFiles::ErrorFiles(const std::string& job_id) {
  std::error_code error;
  auto parent = std::filesystem::temp_directory_path(error);
  if (error) return;
  std::string pattern = (parent / (folder_prefix(job_id) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
}

ErrorFiles::~ErrorFiles() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string ErrorFiles::path_of(int rank) const {
  return folder_.empty() ? std::string() : folder_ + "/" + std::to_string(rank) + ".json";
}

std::string ErrorFiles::message_of(int rank) const {
  std::ifstream file(path_of(rank));
  std::ostringstream text;
  text << file.rdbuf();
  return message_in_error_file(text.str());
}

void remove_error_files(const std::string& job_id) {
  std::error_code error;
  std::vector<std::filesystem::path> left;
  std::filesystem::directory_iterator entry(std::filesystem::temp_directory_path(error), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(folder_prefix(job_id))) left.push_back(entry->path());
  }
  for (const auto& folder : left) std::filesystem::remove_all(folder, error);
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
