// `dslaunch run`.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory_lock.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/run_checkpoints.hpp"
#include "base/small_file.hpp"
#include "config/fingerprint.hpp"
#include "config/load.hpp"
#include "launch/agent/preflight.hpp"
#include "launch/commands/continue_line.hpp"
#include "launch/commands/continued_run.hpp"
#include "launch/commands/launch_commands.hpp"
#include "launch/commands/launch_job.hpp"
#include "launch/commands/run_start.hpp"
#include "launch/plan/binding.hpp"
#include "launch/plan/count_samples.hpp"
#include "launch/plan/input_files.hpp"
#include "launch/plan/model_file.hpp"
#include "launch/plan/plan_job.hpp"
#include "launch/plan/run_dir.hpp"
#include "launch/plan/run_record.hpp"
#include "launch/plan/tensor_groups.hpp"
#include "launch/plan/topology.hpp"
#include "launch/plan/worker_argv.hpp"
#include "launch/plan/working_dir.hpp"
#include "launch/process/programs.hpp"
#include "launch/process/torch_libraries.hpp"
#include "launch/records/start_command.hpp"
#include "launch/supervisor/restart.hpp"

namespace dslaunch::launch {
namespace {

void check_data_named(const config::JobConfig& job, const RunOptions& run) {
  if (!job.data.train.empty() || job.data.synthetic_train) return;
  if (run.flags.has("--eval_only") && !job.data.eval.empty()) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format(
          "no data is given. Give it on the command line:\n"
          "    dslaunch {} --data train.safetensors [--inputs a,b] [--labels c]\n"
          "or in the config:\n"
          "    \"data\": {{\"train\": \"train.safetensors\", \"inputs\": [\"a\", \"b\"], \"labels\": [\"c\"]}}\n"
          "Formats: .safetensors, .npz and .npy arrays, token streams; \"synthetic\" needs no file "
          "(docs/config.md).",
          run.model));
}

config::LoadResult load_config(const RunOptions& run, int world_size) {
  auto loaded = config::load_file(run.config, overrides_of(run), {.world_size = world_size});
  config::throw_if_bad(loaded);
  check_data_named(loaded.config, run);
  return loaded;
}

EarlierRun earlier_run(const RunOptions& run) {
  if (run.overwrite) return EarlierRun::kDiscard;
  return run.flags.has("--resume") ? EarlierRun::kKeep : EarlierRun::kRefuse;
}

// Errors that the ranks would find only after --overwrite has removed the earlier run.
void check_inputs(const RunOptions& run, const config::JobConfig& config, const LaunchPlan& plan) {
  check_model_archive(absolute_path(run.model));
  const bool has_ranks_here =
      std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const auto& node) { return node.reach == Reach::kPipe; });
  if (!has_ranks_here) return;
  check_named_files(config, plan.cwd);
  if (!run.flags.has("--eval_only")) check_enough_samples(config, plan.cwd, plan.mesh.data);
}

// Every rank reads the file again; a pipe (<(...), /dev/stdin) can be read only once.
void check_config_file(const std::string& config) {
  std::error_code ignored;
  if (config.empty() || config::is_config_text(config) || std::filesystem::is_regular_file(config, ignored)) return;
  throw UserError(
      ExitCode::kNoInput,
      fmt::format("--config {} is not a regular file, and every rank has to read it: write it to a file, or give "
                  "--config - the text on standard input",
                  config));
}

// The file DIR/best changes when a better checkpoint is saved; a job resumes from the one that it named at the start.
std::string best_checkpoint_in(const std::string& directory) {
  std::string best = best_checkpoint(directory);
  if (!best.empty()) return best;
  throw UserError(ExitCode::kNoInput,
                  fmt::format("--resume: no best checkpoint in {}: runs with checkpoint.keep_best name one there; "
                              "'auto' takes the newest",
                              directory));
}

// "best" and DIR/best become the checkpoint.
void choose_best_checkpoint(RunOptions& run) {
  const std::filesystem::path resume = run.flags.text("--resume");
  std::error_code ignored;
  if (resume == "best") {
    if (run.launch.run_dir.empty()) {
      throw UserError(ExitCode::kUsage,
                      "--resume best needs --run_dir: of which run? From another run's, name "
                      "RUN_DIR/checkpoints/best");
    }
    const std::string directory = checkpoints_of_run(run.launch.run_dir);
    run.flags.set("--resume", best_checkpoint_in(directory.empty() ? run.launch.run_dir : directory));
  } else if (resume.filename() == "best" && std::filesystem::is_regular_file(resume, ignored)) {
    run.flags.set("--resume", best_checkpoint_in(resume.has_parent_path() ? resume.parent_path().string() : "."));
  }
}

// With node-local storage the checkpoint may exist on the job's hosts only; the ranks look for it.
void check_resume_path(const RunOptions& run, const config::JobConfig& config) {
  if (config.checkpoint.use_node_local_storage) return;
  const std::string resume = run.flags.text("--resume");
  if (resume.empty() || resume == "auto") return;
  // A checkpoint whose replacement was killed is beside its name; the ranks check whether it is complete.
  std::filesystem::path named = resume;
  if (named.filename() == "manifest.json") named = named.parent_path();
  const std::string text = named.string(), beside = text.substr(0, text.find_last_not_of('/') + 1) + ".replaced";
  std::error_code error, ignored;
  if (std::filesystem::exists(resume, error) || std::filesystem::is_directory(beside, ignored)) return;
  throw UserError(ExitCode::kNoInput,
                  fmt::format("--resume {}: {}{}; 'auto' takes the newest of the run directory", resume,
                              error ? error.message() : "it does not exist", did_you_mean_file(resume)));
}

// Ranks that share cores by far are slow, and their waits may look like hangs.
void warn_of_crowded_cores(LaunchPlan& plan) {
  constexpr int kFar = 4;
  if (plan.device != "cpu") return;
  for (const auto& node : plan.nodes) {
    const int ranks = static_cast<int>(node.ranks.size()), cpus = num_usable_cpus();
    if (node.reach != Reach::kPipe || ranks <= kFar * cpus) continue;
    plan.warnings.push_back(
        fmt::format("{} CPU ranks share the {} CPU{} of this host: expect slow steps; --num_gpus {} "
                    "gives each rank one",
                    ranks, cpus, cpus == 1 ? "" : "s", cpus));
  }
}

std::string content_to_send(const std::string& path) {
  SmallFile file = read_small_file(path);
  if (file.outcome.ok()) return std::move(file.bytes);
  throw UserError(ExitCode::kNoInput, fmt::format("cannot send {} to the other hosts: {}", path, file.outcome.error()));
}

void find_torch(LaunchPlan& plan) {
  const auto inherited = plan.env.find("LD_LIBRARY_PATH");
  if (auto path =
          torch_library_path(inherited == plan.env.end() ? std::string() : inherited->second, plan.reach.push)) {
    plan.env["LD_LIBRARY_PATH"] = plan.set_env["LD_LIBRARY_PATH"] = plan.exported_env["LD_LIBRARY_PATH"] = *path;
  }
}

// A terminal shows where the run is in one line, if its output can move the cursor and nothing else reads it.
bool has_live_line(const RunOptions& run) {
  const LaunchOptions& launch = run.launch;
  const char* terminal = std::getenv("TERM");
  const bool moves_cursor = terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
  return ::isatty(STDOUT_FILENO) == 1 && moves_cursor && !launch.detach && !launch.dry_run && !launch.json &&
         !launch.quiet && !run.flags.has("--eval_only");
}

// " (2 data x 2 stages x 2 tensor)"; empty where every rank holds a whole model.
std::string mesh_text(const comm::Mesh& mesh) {
  if (mesh.pipe * mesh.tensor == 1) return {};
  return fmt::format(" ({} data{}{})", mesh.data, mesh.pipe > 1 ? fmt::format(" x {} stages", mesh.pipe) : "",
                     mesh.tensor > 1 ? fmt::format(" x {} tensor", mesh.tensor) : "");
}

// Plans a training job: checks its config for its world, prepares its run directory and the worker's command line; for
// a restart, finds where it resumes and how its batch divides on the remaining hosts.
class TrainPlanner final : public JobPlanner {
 public:
  explicit TrainPlanner(const RunOptions& run) : run_(run) {}
  ~TrainPlanner() override {
    leave();
    if (is_prepared_ && !has_succeeded_) start_.take_back();
  }

  DeviceUser device_user() const override { return DeviceUser::kOurWorker; }
  JobCommand command() const override { return job_command(run_); }
  LaunchPlan plan(const ResolvedHosts& hosts, int restart) override;
  void prepare(const LaunchPlan& plan) override;
  void attempt_ended(const JobReport& report) override { has_succeeded_ = report.outcome.exit_code == 0; }
  std::string what_next(const LaunchPlan& plan, const JobReport& report, bool on_record,
                        std::optional<int64_t> last_step) const override;
  bool moves_logs() const override { return start_.moves_logs(); }
  void leave() override { DirectoryLock gone = std::move(lock_); }

 private:
  ResolvedHosts hosts_of_whole_models(const ResolvedHosts& hosts) const;
  std::string choose_run_dir(const std::string& job_id) const;
  std::string name_of_run() const;
  void go_on();
  void load_config_for(LaunchPlan& plan, int restart);
  void split_anew(int data_ranks);
  void keep_settings(const LaunchPlan& plan, int restart);
  void prepare_for_other_machines(LaunchPlan& plan) const;

  struct FirstBatch {
    int64_t global = 0, micro = 0;
    int data_ranks = 0;
  };
  RunOptions run_;
  std::optional<std::string> begin_from_;  // for a restart of a job that did not begin with auto: its original --resume
  FirstBatch batch_;
  std::optional<int64_t> steps_;  // of the whole run, where the config says so
  bool may_end_early_ = false;    // train.early_stopping
  config::Scheduler scheduler_;
  int stages_ = 1, tensor_ = 1;     // the model is cut into as many, however many hosts are left
  std::vector<std::string> notes_;  // for people: what in the config is worth a line
  DirectoryLock lock_;
  uint64_t model_ = 0, config_ = 0;  // fingerprints
  RunStart start_;
  bool is_prepared_ = false, has_succeeded_ = false;
};

LaunchPlan TrainPlanner::plan(const ResolvedHosts& hosts, int restart) {
  if (restart > 0) go_on();
  LaunchPlan plan = plan_job(run_.launch, restart > 0 ? hosts_of_whole_models(hosts) : hosts, DeviceRule::kOnePerRank);
  plan.kind = JobKind::kRun;
  plan.restart_count = restart;
  load_config_for(plan, restart);
  find_torch(plan);
  if (run_.launch.run_dir.empty()) run_.launch.run_dir = choose_run_dir(plan.job_id);
  plan.run_dir = absolute_path(run_.launch.run_dir);
  if (run_.launch.name.empty()) run_.launch.name = name_of_run();
  plan.name = run_.launch.name;
  keep_settings(plan, restart);
  plan.output.live = has_live_line(run_);
  plan.append_logs = run_.flags.has("--resume");
  if (restart == 0) check_run_dir(plan.run_dir, earlier_run(run_));
  plan.argv = worker_argv(run_, worker_program(), plan.device, plan.run_dir);
  if (plan.output.live) plan.argv.emplace_back("--live");
  if (begin_from_) plan.argv.insert(plan.argv.end(), {"--begin_from", *begin_from_});
  if (plan.has_remote_nodes()) prepare_for_other_machines(plan);
  return plan;
}

void TrainPlanner::prepare(const LaunchPlan& plan) {
  if (plan.restart_count > 0) return;
  start_.look_at(plan.run_dir, /*keeps_run=*/!run_.overwrite);
  lock_ = prepare_run_dir(plan.run_dir, earlier_run(run_), plan.job_id);
  is_prepared_ = true;
  // The document of --json names files of the directory. On another machine rank 0 may have done steps.
  const bool may_remove = plan.nodes.front().reach == Reach::kPipe && !run_.launch.json;
  if (run_.flags.has("--eval_only")) {
    start_.record_nothing(plan.job_id, may_remove);
  } else {
    start_.record({plan.job_id, std::time(nullptr), model_, config_, plan.name, plan.start}, may_remove);
  }
  for (const auto& note : notes_) log::info("{}", note);
  // The devices of other hosts are not known yet.
  const std::string device = plan.device == "auto" ? "the hosts' devices" : plan.device;
  log::info("{} rank(s){} on {}, run directory {}", plan.world_size(), mesh_text(plan.mesh), device, plan.run_dir);
}

// --resume auto without --run_dir continues the newest run of this model and this config.
std::string TrainPlanner::choose_run_dir(const std::string& job_id) const {
  const std::string own = "runs/" + job_id;
  if (run_.flags.text("--resume") != "auto") return own;
  const auto found = find_run_to_resume(absolute_path("runs"), model_, config_);
  if (found) {
    log::info("--resume auto: the newest run of this model and config that is not running is {}", *found);
  } else {
    log::info("--resume auto: no run of this model and config in {} can be continued; a new run begins",
              absolute_path("runs"));
  }
  return found.value_or(own);
}

// A job that continues a run has the name of the run: --name, else the id of its first job.
std::string TrainPlanner::name_of_run() const {
  if (!run_.flags.has("--resume") || run_.flags.has("--eval_only")) return {};
  const std::string dir = absolute_path(run_.launch.run_dir);
  const auto record = read_run_record(dir);
  return record && holds_run(dir) ? record->label() : std::string();
}

// A run that was stopped or has failed continues; one that is done, with as many steps again, unless the command line
// limits its epochs as well, or its schedule has ended.
std::string TrainPlanner::what_next(const LaunchPlan& plan, const JobReport& report, bool on_record,
                                    std::optional<int64_t> last_step) const {
  if (plan.start.words.empty() || only_evaluates(plan.start) || !holds_run(plan.run_dir)) return {};
  const bool was_stopped = report.reason != StopReason::kNone;
  const int exit_code = report.outcome.exit_code;
  if (was_stopped || exit_code != 0) {
    return continue_line(plan, {exit_code, was_stopped, start_.has_step(), on_record});
  }
  if (!newest_run_checkpoint(plan.run_dir)) return {};
  if (!last_step || run_.flags.has("--epochs")) return {};
  const auto steps = steps_to_train_on(scheduler_, steps_, *last_step);
  if (!steps) return {};
  std::vector<std::string> more{"--steps", fmt::format("{}", *steps)};
  // A run that has ended early would do so again.
  if (may_end_early_ && (!steps_ || *last_step < *steps_)) {
    more.insert(more.end(), {"--set", "train.early_stopping=null"});
  }
  return "to train on: " + resume_command(plan, on_record, more);
}

// The hosts that are left may have no multiple of the ranks that one model takes.
ResolvedHosts TrainPlanner::hosts_of_whole_models(const ResolvedHosts& hosts) const {
  ResolvedHosts used = hosts;
  const int model = stages_ * tensor_;
  if (const int idle = leave_out_surplus(used, model); idle > 0) {
    const std::string parts = tensor_ == 1   ? fmt::format("{} pipeline stages", stages_)
                              : stages_ == 1 ? fmt::format("{} tensor ranks", tensor_)
                                             : fmt::format("{} pipeline stages x {} tensor ranks", stages_, tensor_);
    log::info("{} of {} slots stay idle: {} need a multiple of {} ranks", idle, hosts.allocation.world_size(), parts,
              model);
  }
  return used;
}

// A restart resumes from the newest checkpoint of this run, or from this run's start if there is none: an earlier run's
// checkpoints may be in the same directory, or in the path that it began from. An evaluation is repeated from its
// original input.
void TrainPlanner::go_on() {
  if (run_.flags.has("--eval_only")) return;
  const std::string resume = run_.flags.text("--resume");
  if (resume != "auto") begin_from_ = resume.empty() ? "" : absolute_path(resume);
  run_.flags.set("--resume", "auto");
  run_.overwrite = false;
}

// The global batch belongs to the job; how it divides depends on the data ranks.
void TrainPlanner::load_config_for(LaunchPlan& plan, int restart) {
  if (restart > 0) {
    plan.mesh = comm::make_mesh(plan.world_size(), stages_, tensor_);
    if (plan.mesh.data != batch_.data_ranks) split_anew(plan.mesh.data);
    load_config(run_, plan.world_size());
    return;
  }
  auto loaded = load_config(run_, plan.world_size());
  stages_ = static_cast<int>(loaded.config.pipeline.stages);
  tensor_ = static_cast<int>(loaded.config.tensor_parallel.size);
  steps_ = loaded.config.train.steps;
  may_end_early_ = loaded.config.train.early_stopping.has_value();
  scheduler_ = loaded.config.scheduler;
  plan.mesh = comm::make_mesh(plan.world_size(), stages_, tensor_);
  check_config_file(run_.config);
  check_resume_path(run_, loaded.config);
  check_inputs(run_, loaded.config, plan);
  model_ = model_fingerprint(absolute_path(run_.model));
  config_ = config::fingerprint(loaded);
  warn_of_crowded_cores(plan);
  if (auto warning = tensor_groups_over_hosts(plan); !warning.empty()) plan.warnings.push_back(std::move(warning));
  batch_ = {loaded.config.batch.train_batch, loaded.config.batch.micro_batch, plan.mesh.data};
  notes_ = loaded.notes;
  const auto& elsewhere = loaded.config.checkpoint.dir;
  if (run_.overwrite && !elsewhere.empty()) {
    // Several runs may share the directory, and which checkpoints the overwritten run saved there is not recorded.
    log::warning(
        "--overwrite keeps the checkpoints in {}: until this run has saved one, --resume auto would resume "
        "from those",
        elsewhere);
  }
  if (run_.flags.has("--eval_only") && (run_.flags.has("--steps") || run_.flags.has("--epochs"))) {
    notes_.emplace_back("--steps and --epochs have no effect with --eval_only");
  }
}

// From the checkpoint with which the job begins; in a restart, from what the first attempt recorded.
void TrainPlanner::keep_settings(const LaunchPlan& plan, int restart) {
  const std::string resume = run_.flags.text("--resume");
  if (resume.empty() || run_.flags.has("--eval_only")) return;
  const auto loaded = load_config(run_, plan.world_size());
  if (resume != "auto" && loaded.config.checkpoint.load.weights_only) return;
  const auto& elsewhere = loaded.config.checkpoint.dir;
  const std::string own = elsewhere.empty() ? plan.run_dir : elsewhere;
  const std::string recorded = restart > 0 ? read_plain_file(plan.run_dir + "/" + kResolvedConfigName).bytes
                                           : config_of_checkpoint(resume == "auto" ? own : resume);
  const auto kept = settings_to_keep(recorded, loaded);
  if (kept.sets.empty()) return;
  run_.sets.insert(run_.sets.end(), kept.sets.begin(), kept.sets.end());
  const auto batch = load_config(run_, plan.world_size()).config.batch;
  batch_ = {batch.train_batch, batch.micro_batch, plan.mesh.data};
  for (const auto& line : kept.lines) log::info("{}", line);
}

void TrainPlanner::split_anew(int data_ranks) {
  auto split = split_batch(batch_.global, batch_.micro, data_ranks);
  if (!split) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the global batch of {} is not divisible among {} data ranks (it was among {}): restart on "
                    "a number of ranks that divides it, or resume with --set train_batch_size=N",
                    batch_.global, data_ranks, batch_.data_ranks));
  }
  run_.sets.push_back(fmt::format("train_batch_size={}", batch_.global));
  run_.sets.push_back(fmt::format("train_micro_batch_size_per_gpu={}", split->micro_batch));
  run_.sets.push_back(fmt::format("gradient_accumulation_steps={}", split->accumulation));
  batch_.data_ranks = data_ranks;
  log::info("the global batch of {} is now micro batch {} x accumulation {} x {} data ranks", batch_.global,
            split->micro_batch, split->accumulation, data_ranks);
}

// Small files are sent with the job; the model must already be on each host, and equal.
void TrainPlanner::prepare_for_other_machines(LaunchPlan& plan) const {
  plan.preflight = make_preflight(absolute_path(run_.model));
  for (const auto& path : {run_.config, run_.flags.text("--loss")}) {
    std::error_code ignored;
    if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) continue;
    plan.files[absolute_path(path)] = content_to_send(path);
  }
}

void check_resume(const RunOptions& run) {
  if (run.flags.text("--resume") == "auto" && run.launch.run_dir.empty() && run.flags.has("--eval_only")) {
    throw UserError(ExitCode::kUsage, "--eval_only --resume auto needs --run_dir: which run should be evaluated?");
  }
}

}  // namespace

int run_job(const RunOptions& given) {
  RunOptions run = given;
  set_log_level(run.launch);
  check_resume(run);
  choose_best_checkpoint(run);
  check_model_file(run.model);
  TrainPlanner planner(run);
  return launch_job(run.launch, planner);
}

}  // namespace dslaunch::launch
