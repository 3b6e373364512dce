#include "bench_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"
#include "train_options.hpp"

namespace dslaunch::worker {

std::optional<BenchOptions> read_bench_options(const std::vector<std::string>& arguments) {
  BenchOptions options;
  std::string against;
  CommandLine line("bench", "bench MODEL.pt [options]", "bench model.pt --config ds.json --data train.safetensors");
  line.operand("MODEL.pt", options.model, "what torch.jit.save wrote");
  line.text("--config", options.config, "JSON (DeepSpeed's keys and comments) or YAML", "FILE");
  add_set_option(line, options.sets, "bf16.enabled=true");
  add_run_flags(line, config::FlagGroup::kData, options.flags);
  line.text("--device", options.device, "auto: a GPU if there are any, else CPU", "auto|cpu|cuda");
  line.value_from(1, "--steps", options.steps, "timed steps (20; on CPUs 5)", "N");
  line.value_from(2, "--warmup", options.warmup, "steps before them (10; on CPUs 2)", "N");
  line.text("--against", against, "measures the same file in eager TorchScript as well", "torch");
  line.flag("--json", options.json, "one document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (!against.empty() && against != "torch") {
    command_line::usage_error(fmt::format("--against must be torch, not '{}'", against));
  }
  options.against_torch = !against.empty();
  return options;
}

}  // namespace dslaunch::worker
