#include "launch/agent/error_files.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"

namespace dslaunch::launch {

ErrorFiles::ErrorFiles(const std::string& job_id) {
  try {
    dir_.emplace(job_id);
  } catch (const UserError&) {
    // Ranks also run without error files.
  }
}

std::string ErrorFiles::path_of(int rank) const {
  return dir_ ? dir_->path() + "/" + std::to_string(rank) + ".json" : std::string();
}

std::string ErrorFiles::message_of(int rank) const {
  return message_in_error_file(read_plain_file(path_of(rank)).bytes);
}

std::string message_in_error_file(const std::string& text) {
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("message")) return {};
  const auto& outer = document["message"];
  const auto& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return {};
  auto whole = message.get<std::string>();
  return printable(whole.substr(0, whole.find('\n')), "\t");
}

}  // namespace dslaunch::launch
