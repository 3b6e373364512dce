#include "base/run_checkpoints.hpp"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/small_file.hpp"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultName[] = "checkpoints";

// Empty: the config names none, or cannot be read.
std::string named_in_config(const fs::path& run_dir) {
  const SmallFile file = read_plain_file((run_dir / kResolvedConfigName).string());
  const auto config = nlohmann::json::parse(file.bytes, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("checkpoint") || !config["checkpoint"].is_object()) return {};
  const auto dir = config["checkpoint"].find("dir");
  return dir != config["checkpoint"].end() && dir->is_string() ? dir->get<std::string>() : std::string();
}

bool holds_checkpoints(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory / "manifest.json", ignored) || fs::exists(directory / "latest", ignored)) return true;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("step_")) return true;
  }
  return false;
}

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "manifest.json", ignored);
}

// Of "step_00000050", also where it was moved aside for its replacement; empty: it is not a complete checkpoint.
std::optional<int64_t> step_of_complete(const fs::path& checkpoint) {
  const fs::path name = checkpoint.extension() == ".replaced" ? checkpoint.stem() : checkpoint.filename();
  const std::string text = name.string();
  int64_t step = 0;
  if (!text.starts_with("step_")) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 5, end, step);
  if (error != std::errc() || rest != end || !is_checkpoint(checkpoint)) return std::nullopt;
  return step;
}

// The checkpoint that a file of the directory names in its first word; empty: the file is missing, or the checkpoint.
std::string named_in(const fs::path& directory, const char* file) {
  const std::string text = read_plain_file((directory / file).string()).bytes;
  const std::string name = text.substr(0, text.find_first_of(" \t\r\n"));
  if (!name.starts_with("step_") || name.find('/') != name.npos) return {};
  return is_checkpoint(directory / name) ? (directory / name).string() : std::string();
}

struct CompleteCheckpoint {
  int64_t step;
  fs::path path;
};

// The one that `latest` names, else that of the highest step; empty: there is none.
std::optional<CompleteCheckpoint> newest_in(const fs::path& directory) {
  if (directory.empty()) return std::nullopt;
  const std::string latest = named_in(directory, "latest");
  if (const auto step = step_of_complete(latest)) return CompleteCheckpoint{*step, latest};
  std::optional<CompleteCheckpoint> newest;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const auto step = step_of_complete(at->path());
    const bool is_newer = step && (!newest || *step > newest->step);
    const bool is_whole_name = step && newest && *step == newest->step && !at->path().has_extension();
    if (is_newer || is_whole_name) newest = CompleteCheckpoint{*step, at->path()};
  }
  return newest;
}

}  // namespace

std::string checkpoints_of_run(const std::string& run_dir) {
  std::error_code ignored;
  if (!fs::is_directory(run_dir, ignored) || holds_checkpoints(run_dir)) return {};
  if (std::string named = named_in_config(run_dir); !named.empty()) return named;
  const fs::path usual = fs::path(run_dir) / kDefaultName;
  return fs::is_directory(usual, ignored) ? usual.string() : std::string();
}

std::string best_checkpoint(const std::string& directory) {
  return named_in(directory, "best");
}

std::string newest_checkpoint(const std::string& path) {
  const fs::path given = fs::path(path).filename() == "latest" ? fs::path(path).parent_path() : fs::path(path);
  if (is_checkpoint(given)) return given.string();
  const std::string of_run = checkpoints_of_run(given.string());
  const auto newest = newest_in(of_run.empty() ? given : fs::path(of_run));
  return newest ? newest->path.string() : std::string();
}

std::optional<int64_t> newest_run_checkpoint(const std::string& run_dir) {
  const auto newest = newest_in(checkpoints_of_run(run_dir));
  return newest ? std::optional(newest->step) : std::nullopt;
}

}  // namespace dslaunch
