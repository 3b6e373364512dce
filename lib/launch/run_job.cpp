#include "launch/run_job.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/small_file.hpp"
#include "config/load.hpp"
#include "config/option_list.hpp"
#include "launch/carry_out.hpp"
#include "launch/model_file.hpp"
#include "launch/plan_job.hpp"
#include "launch/preflight.hpp"
#include "launch/programs.hpp"
#include "launch/restart.hpp"
#include "launch/run_folder.hpp"
#include "launch/working_folder.hpp"

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

std::vector<config::Override> overrides_of(const RunOptions& run) {
  std::vector<config::Override> overrides;
  auto add = [&](const char* key, const std::string& value, const char* option) {
    overrides.push_back({key, value, option});
  };
  if (run.steps) add("train.steps", std::to_string(*run.steps), "--steps");
  if (run.epochs) add("train.epochs", std::to_string(*run.epochs), "--epochs");
  if (run.seed) add("train.seed", std::to_string(*run.seed), "--seed");
  if (!run.data.empty()) add("data.train", data_value(run.data), "--data");
  if (!run.inputs.empty()) add("data.inputs", run.inputs, "--inputs");
  if (!run.labels.empty()) add("data.labels", run.labels, "--labels");
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
      fmt::format(
          "no data is named. Either name it on the command line:\n"
          "    dslaunch {} --data train.safetensors [--inputs a,b] [--labels c]\n"
          "or in the config:\n"
          "    \"data\": {{\"train\": \"train.safetensors\", \"inputs\": [\"a\", \"b\"], \"labels\": [\"c\"]}}\n"
          "Formats: .safetensors, .npz and .npy arrays, token streams; \"synthetic\" needs no file "
          "(docs/config.md).",
          run.model));
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
}

// Every rank reads it again, which a pipe (<(...), /dev/stdin) allows once.
void check_config_file(const std::string& config) {
  std::error_code ignored;
  if (config.empty() || std::filesystem::is_regular_file(config, ignored)) return;
  throw UserError(ExitCode::kNoInput,
                  fmt::format("--config {} is no file, and every rank has to read it: write it to a file", config));
}

// With node-local storage it may lie on the job's hosts only; they look for it.
void check_resume_path(const RunOptions& run, const config::JobConfig& config) {
  if (config.checkpoint.use_node_local_storage) return;
  if (run.resume.empty() || run.resume == "auto") return;
  // A checkpoint whose replacement was killed lies beside its name; the ranks see whether it is whole.
  std::filesystem::path named = run.resume;
  if (named.filename() == "manifest.json") named = named.parent_path();
  const std::string text = named.string(), beside = text.substr(0, text.find_last_not_of('/') + 1) + ".replaced";
  std::error_code error, ignored;
  if (std::filesystem::exists(run.resume, error) || std::filesystem::is_directory(beside, ignored)) return;
  throw UserError(ExitCode::kNoInput, fmt::format("--resume {}: {}; 'auto' takes the newest of the run folder",
                                                  run.resume, error ? error.message() : "there is no such checkpoint"));
}

std::string content_to_send(const std::string& path) {
  SmallFile file = read_small_file(path);
  if (file.trouble.empty()) return std::move(file.bytes);
  throw UserError(ExitCode::kNoInput, fmt::format("{} cannot be sent to the other hosts: {}", path, file.trouble));
}

}  // namespace

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
  if (run.eval_only) argv.emplace_back("--eval_only");
  if (run.trace) add("--trace", std::to_string(*run.trace));
  if (run.timings) add("--timings", fmt::format("{:.3f}", run.started.count()));
  if (run.launch.quiet) argv.emplace_back("--quiet");
  if (run.launch.verbose) argv.emplace_back("--verbose");
  return argv;
}

namespace {

// One training job over its attempts.
class RunMaker {
 public:
  explicit RunMaker(const RunOptions& run) : run_(run) {}

  LaunchPlan plan(const ResolvedHosts& hosts, int restart) {
    if (restart > 0) go_on();
    LaunchPlan plan = plan_job(run_.launch, hosts, DeviceRule::kOnePerRank);
    plan.kind = JobKind::kRun;
    plan.restart_count = restart;
    load_config_for(plan.world_size(), restart);
    find_torch(plan);
    if (run_.launch.run_dir.empty()) run_.launch.run_dir = "runs/" + plan.job_id;
    plan.run_dir = absolute_path(run_.launch.run_dir);
    plan.append_logs = !run_.resume.empty();
    if (restart == 0) check_run_folder(plan.run_dir, earlier_run(run_));
    plan.argv = worker_argv(run_, worker_program(), plan.device, plan.run_dir);
    if (begin_from_) plan.argv.insert(plan.argv.end(), {"--begin_from", *begin_from_});
    if (plan.has_remote_nodes()) prepare_for_other_machines(plan);
    return plan;
  }

  void prepare(const LaunchPlan& plan, int restart) {
    if (restart > 0) return;
    lock_ = prepare_run_folder(plan.run_dir, earlier_run(run_), fmt::format("job {}", plan.job_id));
    for (const auto& note : notes_) log::info("{}", note);
    // Of other hosts it is not known yet.
    const std::string device = plan.device == "auto" ? "the hosts' devices" : plan.device;
    log::info("{} rank(s) on {}, run folder {}", plan.world_size(), device, plan.run_dir);
  }

  void leave() { FolderLock gone = std::move(lock_); }

 private:
  // A restart goes on from the newest checkpoint of this very run, or from its beginning where there is none: an
  // earlier run's may lie in the same folder, or in the path that it began from. An evaluation is made again from what
  // it was to look at.
  void go_on() {
    if (run_.eval_only) return;
    if (run_.resume != "auto") begin_from_ = run_.resume.empty() ? "" : absolute_path(run_.resume);
    run_.resume = "auto";
    run_.overwrite = false;
  }

  // The global batch is the job's; how it divides is the world's.
  void load_config_for(int world_size, int restart) {
    if (restart > 0 && world_size != batch_.world_size) split_anew(world_size);
    auto loaded = load_config(run_, world_size);
    if (restart > 0) return;
    check_config_file(run_.config);
    check_resume_path(run_, loaded.config);
    batch_ = {loaded.config.batch.train_batch, loaded.config.batch.micro_batch, world_size};
    notes_ = loaded.notes;
    if (run_.eval_only && (run_.steps || run_.epochs)) {
      notes_.emplace_back("--steps and --epochs have no effect with --eval_only");
    }
  }

  void split_anew(int world_size) {
    auto split = split_batch(batch_.global, batch_.micro, world_size);
    if (!split) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("the global batch of {} does not divide among {} ranks (it did among {})",
                                  batch_.global, world_size, batch_.world_size));
    }
    run_.sets.push_back(fmt::format("train_batch_size={}", batch_.global));
    run_.sets.push_back(fmt::format("train_micro_batch_size_per_gpu={}", split->micro_batch));
    run_.sets.push_back(fmt::format("gradient_accumulation_steps={}", split->accumulation));
    log::info("the global batch of {} is now micro batch {} x accumulation {} x {} ranks", batch_.global,
              split->micro_batch, split->accumulation, world_size);
  }

  static void find_torch(LaunchPlan& plan) {
    const auto inherited = plan.env.find("LD_LIBRARY_PATH");
    if (auto path = torch_library_path(inherited == plan.env.end() ? std::string() : inherited->second)) {
      plan.env["LD_LIBRARY_PATH"] = plan.set_env["LD_LIBRARY_PATH"] = plan.travelling_env["LD_LIBRARY_PATH"] = *path;
    }
  }

  // Small files travel with the job; the model has to be there, and the same.
  void prepare_for_other_machines(LaunchPlan& plan) const {
    plan.preflight = make_preflight(absolute_path(run_.model));
    for (const auto& path : {run_.config, run_.loss}) {
      std::error_code ignored;
      if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) continue;
      plan.files[absolute_path(path)] = content_to_send(path);
    }
  }

  struct FirstBatch {
    int64_t global = 0, micro = 0;
    int world_size = 0;
  };
  RunOptions run_;
  std::optional<std::string> begin_from_;  // of a restart of a job that did not begin with auto: its --resume then
  FirstBatch batch_;
  std::vector<std::string> notes_;  // for people: what the config says that is worth a line
  FolderLock lock_;
};

}  // namespace

int run_job(const RunOptions& run) {
  if (run.launch.quiet) log::set_level(log::Level::kError);
  if (run.launch.verbose) log::set_level(log::Level::kDebug);
  check_model_file(run.model);
  check_resume(run);
  RunMaker run_maker(run);
  JobMaker maker;
  maker.need_cuda_build = true;
  maker.plan = [&](const ResolvedHosts& hosts, int restart) { return run_maker.plan(hosts, restart); };
  maker.prepare = [&](const LaunchPlan& plan, int restart) { run_maker.prepare(plan, restart); };
  maker.leave = [&] { run_maker.leave(); };
  return carry_out(run.launch, maker);
}

}  // namespace dslaunch::launch
