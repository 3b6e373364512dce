#include "launch/run_job.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "config/load.hpp"
#include "launch/model_file.hpp"
#include "launch/plan_job.hpp"
#include "launch/programs.hpp"
#include "launch/run_folder.hpp"

namespace dslaunch::launch {
namespace {

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// "a,b" as the list that the config's reader takes.
std::string list_value(const std::string& names) {
  std::string list;
  for (size_t begin = 0; begin <= names.size();) {
    size_t end = std::min(names.find(',', begin), names.size());
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", names.substr(begin, end - begin));
    begin = end + 1;
  }
  return "[" + list + "]";
}

std::string data_value(const std::string& data) {
  return data == "synthetic" ? data : absolute(data);
}

// A loss is a name or a file.
std::string loss_value(const std::string& loss) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(loss, ignored) ? absolute(loss) : loss;
}

std::vector<config::Override> overrides_of(const RunOptions& run) {
  std::vector<config::Override> overrides;
  auto add = [&](const char* key, const std::string& value, const char* option) {
    overrides.push_back({key, value, option});
  };
  if (run.steps) add("train.steps", std::to_string(*run.steps), "--steps");
  if (run.epochs) add("train.epochs", std::to_string(*run.epochs), "--epochs");
  if (run.seed) add("train.seed", std::to_string(*run.seed), "--seed");
  if (!run.data.empty()) add("data.train", data_value(run.data), "--data");
  if (!run.inputs.empty()) add("data.inputs", list_value(run.inputs), "--inputs");
  if (!run.labels.empty()) add("data.labels", list_value(run.labels), "--labels");
  if (!run.loss.empty()) add("loss", loss_value(run.loss), "--loss");
  for (const auto& text : run.sets) overrides.push_back(config::parse_set_option(text));
  return overrides;
}

void check_data_named(const config::JobConfig& job, const RunOptions& run) {
  bool named = run.eval_only ? !job.data.eval.empty() || !job.data.train.empty() || job.data.synthetic_train
                             : !job.data.train.empty() || job.data.synthetic_train;
  if (named) return;
  throw UserError(
      ExitCode::kBadInput,
      "no data is named. Either name it on the command line:\n"
      "    dslaunch " +
          run.model +
          " --data train.safetensors [--inputs a,b] [--labels c]\n"
          "or in the config:\n"
          "    \"data\": {\"train\": \"train.safetensors\", \"inputs\": [\"a\", \"b\"], \"labels\": [\"c\"]}\n"
          "Formats: .safetensors, .npz and .npy arrays, token streams; \"synthetic\" needs no file (docs/config.md).");
}

config::LoadResult load_config(const RunOptions& run, int world_size) {
  auto loaded = config::load_file(run.config, overrides_of(run), {.world_size = world_size, .steps = run.steps});
  config::throw_if_bad(loaded);
  check_data_named(loaded.config, run);
  return loaded;
}

EarlierRun earlier_run(const RunOptions& run) {
  if (run.overwrite) return EarlierRun::kDiscard;
  return run.resume.empty() ? EarlierRun::kRefuse : EarlierRun::kKeep;
}

void check_resume(const RunOptions& run) {
  if (run.resume == "auto" && run.launch.run_dir.empty()) {
    throw UserError(ExitCode::kUsage, "--resume auto needs --run_dir: which run shall go on?");
  }
  if (run.resume.empty() || run.resume == "auto" || std::filesystem::exists(run.resume)) return;
  throw UserError(
      ExitCode::kNoInput,
      fmt::format("--resume {}: there is no such checkpoint; 'auto' takes the newest of the run folder", run.resume));
}

std::string run_folder_of(const RunOptions& run, const LaunchPlan& plan) {
  return absolute(run.launch.run_dir.empty() ? "runs/" + plan.job_id : run.launch.run_dir);
}

void tell(const RunPreparation& run) {
  for (const auto& note : run.notes) log::info("{}", note);
  log::info("{} rank(s) on {}, run folder {}", run.plan.world_size(), run.plan.device, run.plan.run_dir);
}

}  // namespace

std::vector<std::string> worker_argv(const RunOptions& run, const std::string& worker, const std::string& device,
                                     const std::string& run_dir) {
  std::vector<std::string> argv{worker, "train", absolute(run.model)};
  auto add = [&](const char* name, const std::string& value) { argv.insert(argv.end(), {name, value}); };
  if (!run.config.empty()) add("--config", absolute(run.config));
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
  if (!run.resume.empty()) add("--resume", run.resume == "auto" ? run.resume : absolute(run.resume));
  if (run.eval_only) argv.emplace_back("--eval_only");
  if (run.launch.quiet) argv.emplace_back("--quiet");
  if (run.launch.verbose) argv.emplace_back("--verbose");
  return argv;
}

RunPreparation plan_run(const RunOptions& run) {
  check_model_file(run.model);
  check_resume(run);
  RunPreparation prepared;
  prepared.plan = plan_job(run.launch, true, DeviceRule::kOnePerRank);
  LaunchPlan& plan = prepared.plan;
  prepared.notes = load_config(run, plan.world_size()).notes;
  if (run.config.empty())
    prepared.notes.emplace_back("no --config: default settings (dslaunch config explain shows them)");
  plan.kind = JobKind::kRun;
  const auto inherited = plan.env.find("LD_LIBRARY_PATH");
  if (auto path = torch_library_path(inherited == plan.env.end() ? std::string() : inherited->second)) {
    plan.env["LD_LIBRARY_PATH"] = plan.set_env["LD_LIBRARY_PATH"] = *path;
  }
  plan.run_dir = run_folder_of(run, plan);
  plan.append_logs = !run.resume.empty();
  check_run_folder(plan.run_dir, earlier_run(run));
  plan.argv = worker_argv(run, worker_program(), plan.device, plan.run_dir);
  return prepared;
}

int run_job(const RunOptions& run) {
  if (run.launch.quiet) log::set_level(log::Level::kError);
  if (run.launch.verbose) log::set_level(log::Level::kDebug);
  RunPreparation prepared = plan_run(run);
  if (run.launch.dry_run) return print_plan(prepared.plan, run.launch);
  prepare_run_folder(prepared.plan.run_dir, earlier_run(run));
  tell(prepared);
  return launch(prepared.plan, run.launch);
}

}  // namespace dslaunch::launch
