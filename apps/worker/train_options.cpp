#include "train_options.hpp"

#include "command_line.hpp"

namespace dslaunch::worker {
namespace {

void add_run_options(CommandLine& line, TrainOptions& to) {
  line.operand("MODEL.pt", to.model, "what torch.jit.save wrote");
  line.text("--config", to.config, "JSON (DeepSpeed's keys and comments) or YAML", "FILE");
  line.app()
      .add_option("--set", to.sets, "wins over the config, e.g. optimizer.params.lr=1e-4; repeatable")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  line.text("--run_dir", to.run_dir, "directory for results (" + to.run_dir + ")", "DIR");
  line.text("--steps", to.steps, "optimizer steps, counted from the start of training", "N");
  line.text("--epochs", to.epochs, "passes over the data", "N");
  line.text("--seed", to.seed, "of dropout and other random numbers in the model", "N");
  line.text("--resume", to.resume, "from the newest checkpoint of the run directory, or from PATH", "auto|PATH");
  line.text("--begin_from", to.begin_from, "with --resume auto, where this job saved nothing: what to resume from",
            "PATH");
  line.flag("--eval_only", to.eval_only, "no training: the loss over data.eval");
}

void add_data_options(CommandLine& line, TrainOptions& to) {
  line.text("--data", to.data, "file, glob, a list [a,b] of them, or 'synthetic'", "PATH");
  line.text("--inputs", to.inputs, "arrays in the order of forward", "a,b");
  line.text("--labels", to.labels, "arrays after them", "c");
  line.text("--loss", to.loss, "cross_entropy, mse or a TorchScript file, where forward returns no loss", "NAME|FILE");
}

void add_rank_options(CommandLine& line, TrainOptions& to) {
  line.text("--device", to.device, "auto: a GPU if there are any, else CPU", "auto|cpu|cuda");
  line.value_from(1, "--trace", to.trace, "write what step STEP did and when", "STEP");
  line.value_from(0, "--timings", to.timings, "at the end, a table of where the time since then went",
                  "SECONDS_SINCE_1970");
  line.value_from(1, "--verify", to.verify, "compare the first N steps with an unsharded replica on rank 0", "N");
  line.value_from(0.001, "--hang_timeout", to.hang_timeout, "how long ranks wait for each other (1800)", "SECONDS");
  line.flag("--quiet", to.quiet, "nothing but warnings and errors");
  line.flag("--verbose", to.verbose, "say more");
}

}  // namespace

std::optional<TrainOptions> read_train_options(const std::vector<std::string>& arguments) {
  TrainOptions options;
  CommandLine line("train", "train [options] MODEL.pt", "train model.pt --config ds.json --data train.safetensors");
  add_run_options(line, options);
  add_data_options(line, options);
  add_rank_options(line, options);
  if (!line.parse(arguments)) return std::nullopt;
  if (options.eval_only && options.verify > 0) {
    command_line::usage_error("--verify compares training steps, and --eval_only takes none");
  }
  return options;
}

}  // namespace dslaunch::worker
