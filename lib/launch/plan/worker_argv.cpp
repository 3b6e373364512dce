#include "launch/plan/worker_argv.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "config/load.hpp"
#include "config/option_list.hpp"
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

// A loss is a name or a file.
std::string loss_value(const std::string& loss) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(loss, ignored) ? absolute_path(loss) : loss;
}

std::optional<std::string> as_text(const std::optional<int64_t>& number) {
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

}  // namespace

std::vector<config::Override> overrides_of(const RunOptions& run) {
  auto overrides = config::end_of_run(as_text(run.steps), as_text(run.epochs));
  auto add = [&](const char* key, const std::string& value, const char* option) {
    overrides.push_back({key, value, option});
  };
  if (run.seed) add("train.seed", std::to_string(*run.seed), "--seed");
  if (!run.data.empty()) add("data.train", data_value(run.data), "--data");
  if (!run.inputs.empty()) add("data.inputs", run.inputs, "--inputs");
  if (!run.labels.empty()) add("data.labels", run.labels, "--labels");
  if (!run.loss.empty()) add("loss", loss_value(run.loss), "--loss");
  for (const auto& text : run.sets) overrides.push_back(config::parse_set_option(text));
  return overrides;
}

std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir) {
  std::vector<std::string> argv{worker, "train", absolute_path(run.model)};
  auto add = [&](const char* name, const std::string& value) { argv.insert(argv.end(), {name, value}); };
  if (!run.config.empty()) add("--config", absolute_path(run.config));
  add("--run_dir", run_dir);
  add("--device", device);
  for (const auto& text : run.sets) add("--set", text);
  if (!run.data.empty()) add("--data", data_value(run.data));
  if (!run.inputs.empty()) add("--inputs", run.inputs);
  if (!run.labels.empty()) add("--labels", run.labels);
  if (!run.loss.empty()) add("--loss", loss_value(run.loss));
  if (run.steps) add("--steps", std::to_string(*run.steps));
  if (run.epochs) add("--epochs", std::to_string(*run.epochs));
  if (run.seed) add("--seed", std::to_string(*run.seed));
  if (!run.resume.empty()) add("--resume", run.resume == "auto" ? run.resume : absolute_path(run.resume));
  if (run.verify) add("--verify", std::to_string(*run.verify));
  if (run.hang_timeout) {
    add("--hang_timeout", fmt::format("{:.3f}", std::chrono::duration<double>(*run.hang_timeout).count()));
  }
  if (run.eval_only) argv.emplace_back("--eval_only");
  if (run.trace) add("--trace", std::to_string(*run.trace));
  if (run.timings) add("--timings", fmt::format("{:.3f}", run.started.count()));
  if (run.launch.quiet) argv.emplace_back("--quiet");
  if (run.launch.verbose) argv.emplace_back("--verbose");
  return argv;
}

}  // namespace dslaunch::launch
