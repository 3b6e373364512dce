#include "runtime/checkpoint/checkpoint_paths.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/format.hpp"
#include "base/run_checkpoints.hpp"
#include "base/small_file.hpp"

namespace dslaunch::runtime {
namespace {

constexpr std::string_view kStepPrefix = "step_";

bool has_manifest(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(checkpoint / kManifestName, ignored);
}

// Of the name that the line begins with.
std::optional<int64_t> step_of_line(const std::string& line) {
  return step_of(line.substr(0, line.find_first_of(" \t\r\n")));
}

// A path whose status the storage cannot report counts as present: treating it as missing would replace it.
bool is_missing(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

}  // namespace

std::string step_name(int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind(kStepPrefix, 0) != 0) return std::nullopt;
  int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

std::string shard_name(int rank) {
  return fmt::format("rank_{:05}.safetensors", rank);
}

bool is_shard_name(const std::string& name) {
  return name.rfind("rank_", 0) == 0;
}

std::string resolve_checkpoint_path(const std::string& path) {
  std::filesystem::path named(path);
  std::error_code ignored;
  const bool is_best = named.filename() == kBestName,
             is_ours = is_best || named.filename() == kLatestName || named.filename() == kManifestName;
  if (is_ours && !std::filesystem::is_directory(named, ignored)) {
    named = named.has_parent_path() ? named.parent_path() : ".";
    const auto best = is_best ? best_steps(named) : std::vector<int64_t>();
    if (!best.empty()) named /= step_name(best.front());
  }
  if (!named.has_filename()) named = named.parent_path();  // DIR/step_N/, as a shell completes it
  if (const std::string of_run = checkpoints_of_run(named.string()); !of_run.empty()) return of_run;
  const std::string replaced = named.string() + kReplaced;
  return replaced_step(replaced) && has_manifest(replaced) ? replaced : named.string();
}

std::optional<int64_t> replaced_step(const std::string& path) {
  const std::filesystem::path directory(path);
  const auto step = directory.extension() == kReplaced ? step_of(directory.stem()) : std::nullopt;
  if (!step) return std::nullopt;
  const auto successor = directory.parent_path() / directory.stem();
  const bool counts = is_missing(successor) || (is_missing(successor / kManifestName) && has_manifest(directory));
  return counts ? step : std::nullopt;
}

std::vector<int64_t> steps_in(const std::string& dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const auto step = step_of(it->path().filename());
    if (step && has_manifest(it->path())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> latest_step(const std::string& dir) {
  return step_of_line(read_small_file(dir + "/" + kLatestName).bytes);
}

std::vector<int64_t> best_steps(const std::string& dir) {
  std::vector<int64_t> out;
  std::istringstream lines(read_plain_file(dir + "/" + kBestName).bytes);
  for (std::string line; std::getline(lines, line);) {
    if (const auto step = step_of_line(line)) out.push_back(*step);
  }
  return out;
}

}  // namespace dslaunch::runtime
