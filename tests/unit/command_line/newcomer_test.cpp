// What newcomers type, with deepspeed, torchrun and transformers' Trainer in their hands: input, exit code, the words
// that must be in the answer and those that must not. Through dispatch(), which main() calls.
#include <catch2/catch.hpp>
#include <filesystem>

#include "apps/launcher/commands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "support/captured_output.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using Words = std::vector<std::string>;

namespace {

struct Case {
  Words words;
  int code;
  Words must, must_not = {};
};

struct Outcome {
  int code = 0;
  std::string text;
};

Outcome outcome_of(const Words& words) {
  log::set_level(log::Level::kInfo);  // --quiet changes it for the process
  const test::CapturedOutput out(1), err(2);
  Outcome outcome;
  std::string message;
  try {
    outcome.code = launcher::dispatch(words);
  } catch (const Error& error) {
    outcome.code = to_int(error.code());
    message = error.what();
  }
  outcome.text = out.text() + err.text() + message;
  return outcome;
}

void check(const std::vector<Case>& cases) {
  for (const auto& [words, code, must, must_not] : cases) {
    CAPTURE(words);
    const Outcome outcome = outcome_of(words);
    CAPTURE(outcome.text);
    CHECK(outcome.code == code);
    for (const auto& part : must) CHECK_THAT(outcome.text, Catch::Matchers::Contains(part));
    for (const auto& part : must_not) CHECK_THAT(outcome.text, !Catch::Matchers::Contains(part));
  }
}

class InDirectory {
 public:
  InDirectory() : before_(std::filesystem::current_path()) { std::filesystem::current_path(dir.path()); }
  ~InDirectory() { std::filesystem::current_path(before_); }
  const test::TempDir dir;

 private:
  std::filesystem::path before_;
};

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("everyday options are answered with what says the same here", "[launcher][newcomer]") {
  check({
      {{"m.pt", "--lr", "1e-4"}, 64, {"--set optimizer.params.lr=1e-4"}, {"did you mean"}},
      {{"--lr=1e-4", "m.pt"}, 64, {"--set optimizer.params.lr=1e-4"}},
      {{"--learning-rate", "1e-4", "m.pt"}, 64, {"--learning_rate", "--set optimizer.params.lr=1e-4"}},
      {{"m.pt", "--batch_size", "8"}, 64, {"--set train_micro_batch_size_per_gpu=8"}},
      {{"m.pt", "--bf16"}, 64, {"--set bf16.enabled=true"}},
      {{"m.pt", "--num_train_epochs", "3"}, 64, {"--epochs 3"}},
      {{"m.pt", "--output_dir", "out dir"}, 64, {"--run_dir 'out dir'"}},
      {{"m.pt", "--gradient_clipping", "1.0"}, 64, {"--set gradient_clipping=1.0"}},
      {{"m.pt", "--optimizer.params.lr", "1"}, 64, {"--set optimizer.params.lr=1"}},
      {{"m.pt", "--zero_stage"}, 64, {"--set zero_optimization.stage=VALUE"}},
      {{"m.pt", "--load_best_model_at_end", "True"}, 64, {"--set checkpoint.keep_best=1"}},
      {{"m.pt", "--metric_for_best_model", "accuracy"}, 64, {"--set checkpoint.keep_best.metric=accuracy"}},
      {{"m.pt", "--early_stopping_patience", "3"}, 64, {"--set train.early_stopping.patience=3"}},
      {{"--model", "m.pt"}, 64, {"dslaunch [options] MODEL.pt"}},
      {{"m.pt", "--dropout", "0.1"}, 64, {"part of the model"}},
      {{"m.pt", "--tf32", "0"}, 64, {"--set tf32=false"}},
      {{"m.pt", "--lr_scheduler_type", "constant_warmup"}, 64, {"did you mean 'constant_with_warmup'?"}, {"--set"}},
      {{"m.pt", "--wandb"}, 64, {"--set wandb.enabled=true"}},
      {{"m.pt", "--offload_optimizer"}, 64, {"--set zero_optimization.offload_optimizer.device=cpu"}},
      {{"m.pt", "--gpus", "0,1"}, 64, {"--include localhost:0,1"}},
      {{"-np", "4", "m.pt"}, 64, {"-np is --num_gpus 4 here"}},
      {{"-N", "2", "m.pt"}, 64, {"-N is --num_nodes 2 here"}},
      {{"m.pt", "--tensor_parallel", "2"}, 64, {"--tp 2"}},
      {{"plan", "m.pt", "--gpus", "8"}, 64, {"--num_gpus 8"}},
      {{"infer", "m.pt", "--max_new_tokens", "5"}, 64, {"--max_new_tokens is --num_tokens 5 here"}},
      {{"infer", "m.pt", "--do_sample"}, 64, {"unless --greedy"}},
      {{"m.pt", "--greater_is_better", "False"}, 64, {"--set checkpoint.keep_best.mode=min"}},
      {{"m.pt", "--do_train", "--lr", "1", "--fsdp_sharding_strategy", "1"},
       64,
       {"--do_train: leave it out", "--set optimizer.params.lr=1", "FSDP's sharding is zero_optimization.stage",
        "3 options are"}},
      {{"m.pt", "--mics_shard_size", "2"}, 64, {"unknown option"}, {"--set"}},  // a key that is refused
      {{"m.pt", "--cpu"}, 64, {"the option is --device cpu"}, {"did you mean"}},
      {{"m.pt", "lr=3"}, 64, {"--set lr=3"}},
      {{"m.pt", "\u2013config", "ds.json"}, 64, {"did you mean '--config'"}},
      {{"m.pt", "--stpes", "3"}, 64, {"did you mean '--steps'"}, {"--set"}},
      {{"exec", "--config", "ds.json", "--", "x"}, 64, {"belongs to 'dslaunch run'", "-- PROGRAM --config FILE"}},
  });
}

TEST_CASE("other launchers' commands are answered with ours", "[launcher][newcomer]") {
  check({
      {{"kill", "last"}, 64, {"'dslaunch stop last'"}},
      {{"ps"}, 64, {"'dslaunch jobs'"}},
      {{"eval", "m.pt"}, 64, {"--eval_only"}},
      {{"llamafactory-cli", "train", "a.yaml"}, 64, {"'dslaunch exec -- python -m llamafactory.launcher a.yaml'?"}},
      {{"torchrun", "train.py"}, 64, {"'dslaunch exec -- python train.py'?"}},
      {{"config", "chek", "ds.json"}, 64, {"did you mean 'check'"}},
      {{"lauch", "m.pt"}, 64, {"did you mean 'launch'"}},
  });
}

TEST_CASE("options that are not needed are accepted with one line", "[launcher][newcomer]") {
  const InDirectory inside;
  const auto exec = [](Words options) {
    options.insert(options.begin(), {"exec", "--device", "cpu", "--dry_run"});
    options.insert(options.end(), {"--", "true"});
    return options;
  };
  check({
      {exec({"--rdzv_backend", "c10d"}), 0, {"--rdzv_backend of torchrun is not needed", "true"}},
      {exec({"--rdzv-id=7"}), 0, {"--rdzv_id of torchrun is not needed"}},
      {exec({"--no_python"}), 0, {"not needed"}},
      {exec({"--local_rank", "-1"}), 0, {"--local_rank of deepspeed is not needed", "--add_local_rank"}},
      {exec({"--quiet", "--no_python"}), 0, {}, {"not needed"}},
      {exec({"--deepspeed"}), 0, {"--deepspeed of deepspeed is not needed"}},
      {exec({"--deepspeed", "ds.json"}), 64, {"belongs to 'dslaunch run'"}},
      {exec({"--rdzv_endpoint", "a:1"}), 64, {"--master_addr A --master_port P"}},
      {exec({"--launcher", "pdsh"}), 64, {"not supported"}},
      // Given to run, it is the config: the file is looked for.
      {{"--device", "cpu", "--deepspeed", "nowhere.json", "nowhere.pt"}, 66, {"nowhere.pt"}, {"not needed"}},
      {{"--deepspeed_config", "a.json", "--config", "b.json", "m.pt"}, 64, {"given more than once"}},
  });
}

TEST_CASE("the best checkpoint needs a run that has one", "[launcher][newcomer]") {
  const InDirectory inside;
  std::filesystem::create_directories(inside.dir / "runs/a/checkpoints/step_00000010");
  check({
      {{"m.pt", "--resume", "best"}, 64, {"--resume best needs --run_dir: of which run?", "checkpoints/best"}},
      {{"m.pt", "--resume", "best", "--run_dir", "runs/b"}, 66, {"no best checkpoint in runs/b", "'auto' takes"}},
      {{"m.pt", "--resume", "best", "--run_dir", "runs/a"},
       66,
       {"no best checkpoint in runs/a/checkpoints: runs with checkpoint.keep_best name one there"}},
  });
  inside.dir.write("runs/a/checkpoints/best", "step_00000020 eval_loss 1\n");
  check({{{"m.pt", "--resume", "runs/a/checkpoints/best"}, 66, {"no best checkpoint in runs/a/checkpoints"}}});
  inside.dir.write("runs/a/checkpoints/best", "step_00000010 eval_loss 1\n");
  inside.dir.write("runs/a/checkpoints/step_00000010/manifest.json", "{}");
  check({{{"m.pt", "--resume", "best", "--run_dir", "runs/a"}, 66, {"m.pt"}, {"best"}}});  // now the model is missing
}

TEST_CASE("help, version, list and train are commands", "[launcher][newcomer]") {
  check({
      {{"help"}, 0, {"usage: dslaunch", "Commands:", "Topics: dslaunch help job | data", "--set"}, {"--ssh_program"}},
      {{"--help"}, 0, {"usage: dslaunch", "--resume"}, {"--ssh_program"}},
      {{"help", "data"}, 0, {"--labels", "Formats:"}, {"--resume"}},
      {{"help", "hosts"}, 0, {"--ssh_program", "--hostfile"}, {"--labels"}},
      {{"help", "all"}, 0, {"--ssh_program", "--labels", "--nproc_per_node", "--tee"}},
      {{"help", "jobs"}, 0, {"usage: dslaunch jobs"}},
      {{"help", "train"}, 0, {"usage: dslaunch [run]"}},
      {{"help", "resume"}, 0, {"usage: dslaunch resume"}},
      {{"help", "dta"}, 64, {"did you mean 'data'"}},
      {{"help", "a", "b"}, 64, {"one at a time"}},
      {{"version"}, 0, {"dslaunch "}},
      {{"version", "x"}, 64, {"unexpected argument 'x'"}},
      {{"list", "--help"}, 0, {"usage: dslaunch jobs"}},
      {{"train", "--steps", "many", "m.pt"}, 64, {"not a whole number"}},
  });
  CHECK(lines_of(outcome_of({"--help"}).text) < 46);
}

TEST_CASE("config explain shows one key, a section, or what was changed", "[launcher][newcomer]") {
  const InDirectory inside;
  inside.dir.write("ds.json", "{optimizer: {params: {learning_rate: 1e-4}}, zero_optimization: {stage: 2}}");
  check({
      {{"config", "explain", "ds.json", "--key", "lr"}, 0, {"optimizer.params", "0.0001", "learning rate"}, {"stage"}},
      {{"config", "explain", "--key", "zero_optimization.stage"}, 0, {"stage", "default"}, {"reduce_bucket_size"}},
      {{"config", "explain", "zero_optimization.stage"}, 0, {"stage", "default"}, {"reduce_bucket_size"}},
      {{"config", "explain", "--key", "scheduler"}, 0, {"warmup_num_steps"}, {"momentum (SGD"}},
      {{"config", "explain", "ds.json", "--changed"}, 0, {"lr", "stage"}, {"warmup_num_steps", "betas"}},
      {{"config", "explain", "--key", "optimizer.params.rl"}, 64, {"did you mean"}},
      {{"config", "explain", "--key", "enabled"}, 64, {"which one?"}},
      {{"config", "check", "ds.json", "--changed"}, 64, {"belong to 'dslaunch config explain'"}},
      {{"config", "check", "ds.json"}, 0, {"'optimizer.params.learning_rate' is 'optimizer.params.lr' here"}},
  });
}
