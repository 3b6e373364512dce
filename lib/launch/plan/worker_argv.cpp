#include "launch/plan/worker_argv.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "config/document.hpp"
#include "config/option_list.hpp"
#include "config/run_flags.hpp"
#include "launch/plan/working_dir.hpp"

namespace dslaunch::launch {
namespace {

// A path, a glob or "synthetic", or a list of paths and globs.
std::string data_value(const std::string& data) {
  auto list = config::list_in_option(data);
  if (!list) return data == "synthetic" ? data : absolute_path(data);
  auto paths = nlohmann::json::array();
  for (const auto& path : *list) paths.push_back(absolute_path(path));
  return dump_json(paths);
}

std::string file_or_name(const std::string& text) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(text, ignored) ? absolute_path(text) : text;
}

std::string with_absolute_paths(config::FlagValue kind, const std::string& text) {
  switch (kind) {
    case config::FlagValue::kPaths:
      return data_value(text);
    case config::FlagValue::kFileOrName:
      return file_or_name(text);
    case config::FlagValue::kPathOrAuto:
      return text == "auto" ? text : absolute_path(text);
    case config::FlagValue::kSwitch:
    case config::FlagValue::kText:
    case config::FlagValue::kNumber:
      break;
  }
  return text;
}

config::RunFlags with_absolute_paths(const config::RunFlags& flags) {
  config::RunFlags out;
  for (const auto& flag : config::run_flags()) {
    if (flags.has(flag.name)) out.set(flag.name, with_absolute_paths(flag.value, flags.text(flag.name)));
  }
  return out;
}

}  // namespace

std::vector<config::Override> overrides_of(const RunOptions& run) {
  return config::overrides_of(with_absolute_paths(run.flags), run.sets);
}

std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir) {
  std::vector<std::string> argv{worker, "train", absolute_path(run.model)};
  auto add = [&](const char* name, const std::string& value) { argv.insert(argv.end(), {name, value}); };
  if (!run.config.empty()) {
    add("--config", config::is_config_text(run.config) ? run.config : absolute_path(run.config));
  }
  add("--run_dir", run_dir);
  add("--device", device);
  for (const auto& text : run.sets) add("--set", text);
  const auto flags = config::words_of(with_absolute_paths(run.flags));
  argv.insert(argv.end(), flags.begin(), flags.end());
  if (run.hang_timeout) {
    add("--hang_timeout", fmt::format("{:.3f}", std::chrono::duration<double>(*run.hang_timeout).count()));
  }
  if (run.timings) add("--timings", fmt::format("{:.3f}", run.started.count()));
  if (run.launch.quiet) argv.emplace_back("--quiet");
  if (run.launch.verbose) argv.emplace_back("--verbose");
  return argv;
}

}  // namespace dslaunch::launch
