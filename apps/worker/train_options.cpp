#include "train_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"

namespace dslaunch::worker {
namespace {

// Values of keys are checked with the config; the other flags are read by the worker itself.
void add_run_flag(CommandLine& line, const config::RunFlag& flag, config::RunFlags& to) {
  const std::string name(flag.name), what(flag.help), value_name(flag.value_name);
  const auto take = [&to, &flag](const std::string& text) { to.set(flag.name, text); };
  if (flag.value == config::FlagValue::kSwitch) {
    line.flag_function(
        name, [take] { take(""); }, what);
    return;
  }
  CLI::Option* option = line.app().add_option_function<std::string>(name, take, what)->type_name(value_name);
  if (flag.value != config::FlagValue::kNumber || !flag.key.empty()) return;
  const auto refuse = [&flag](const std::string& text) {
    return command_line::refuse_below(static_cast<double>(config::minimum_of(flag)), text);
  };
  option->transform(CLI::Validator(command_line::read_whole_number<int64_t>, ""));
  option->check(CLI::Validator(refuse, ""));
}

void add_run_options(CommandLine& line, TrainOptions& to) {
  line.operand("MODEL.pt", to.model, "what torch.jit.save wrote");
  line.text("--config", to.config, "JSON (DeepSpeed's keys and comments) or YAML", "FILE");
  add_set_option(line, to.sets, "optimizer.params.lr=1e-4");
  line.text("--run_dir", to.run_dir, "directory for results (" + to.run_dir + ")", "DIR");
  for (const auto& flag : config::run_flags()) add_run_flag(line, flag, to.flags);
  line.text("--begin_from", to.begin_from, "with --resume auto, where this job saved nothing: what to resume from",
            "PATH");
}

void add_rank_options(CommandLine& line, TrainOptions& to) {
  line.text("--device", to.device, "auto: a GPU if there are any, else CPU", "auto|cpu|cuda");
  line.value_from(0, "--timings", to.timings, "at the end, a table of where the time since then went",
                  "SECONDS_SINCE_1970");
  line.value_from(0.001, "--hang_timeout", to.hang_timeout, "how long ranks wait for each other (1800)", "SECONDS");
  line.flag("--quiet", to.quiet, "nothing but warnings and errors");
  line.flag("--live", to.live, "records for dslaunch's live line among the lines of rank 0");
  line.flag("--verbose", to.verbose, "say more");
}

}  // namespace

void add_set_option(CommandLine& line, std::vector<std::string>& sets, const char* example) {
  line.app()
      .add_option("--set", sets, fmt::format("wins over the config, e.g. {}; repeatable", example))
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void add_run_flags(CommandLine& line, config::FlagGroup group, config::RunFlags& flags) {
  for (const auto& flag : config::run_flags()) {
    if (flag.group == group) add_run_flag(line, flag, flags);
  }
}

std::optional<TrainOptions> read_train_options(const std::vector<std::string>& arguments) {
  TrainOptions options;
  CommandLine line("train", "train [options] MODEL.pt", "train model.pt --config ds.json --data train.safetensors");
  add_run_options(line, options);
  add_rank_options(line, options);
  if (!line.parse(arguments)) return std::nullopt;
  if (options.flags.has("--eval_only") && options.flags.has("--verify")) {
    command_line::usage_error("--verify compares training steps, and --eval_only takes none");
  }
  return options;
}

}  // namespace dslaunch::worker
