#include "plan_options.hpp"

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "command_line.hpp"
#include "train_options.hpp"

namespace dslaunch::worker {
namespace {

void add_size(CommandLine& line, const std::string& name, std::optional<int64_t>& to, const std::string& what) {
  const auto take = [name, &to](const std::string& text) {
    to = parse_byte_size(text);
    if (!to) {
      command_line::usage_error(fmt::format("{} {}: expected a size with a unit, as 80GiB, 80G or 85GB", name, text));
    }
  };
  line.app().add_option_function<std::string>(name, take, what)->type_name("SIZE");
}

}  // namespace

std::optional<PlanOptions> read_plan_options(const std::vector<std::string>& arguments) {
  PlanOptions options;
  CommandLine line("plan", "plan MODEL.pt [options]", "plan model.pt --config ds.json --num_gpus 8 --gpu_memory 80GiB");
  line.app().add_option("MODEL.pt", options.model, "what torch.jit.save wrote");
  line.text("--config", options.config, "JSON (DeepSpeed's keys and comments) or YAML", "FILE");
  add_set_option(line, options.sets, "optimizer.params.lr=1e-4");
  add_run_flags(line, config::FlagGroup::kParallel, options.flags);
  add_run_flags(line, config::FlagGroup::kData, options.flags);
  line.text("--device", options.device, "auto: GPUs if there is one or --gpu_memory is given, else CPU ranks",
            "auto|cpu|cuda");
  line.value_from(1, "--num_gpus", options.num_gpus, "GPUs of each host; on CPU the number of ranks (1)", "N");
  line.value_from(1, "--num_nodes", options.num_nodes, "hosts (1)", "N");
  add_size(line, "--gpu_memory", options.gpu_memory, "of each GPU; without it that of the GPU of this machine");
  add_size(line, "--host_memory", options.host_memory, "of each host; without it what this machine has available");
  add_size(line, "--activations", options.activations, "of one rank, on top of its state");
  line.flag("--measure", options.measure, "runs a forward and a backward of one micro batch for its activations");
  line.flag("--largest", options.largest, "instead of a model, the largest GPT that fits");
  line.text("--suggest", options.suggest, "writes the config that fits with the least predicted step time", "FILE");
  line.value_from(0.001, "--tflops", options.tflops, "of --suggest: a rank's matrix products", "N");
  add_size(line, "--device_bandwidth", options.device_bandwidth, "of --suggest: device memory, per second");
  add_size(line, "--link_bandwidth", options.link_bandwidth, "of --suggest: a rank's device and host, each way");
  add_size(line, "--host_bandwidth", options.host_bandwidth, "of --suggest: memory of a host");
  add_size(line, "--network_bandwidth", options.network_bandwidth, "of --suggest: what a rank sends in collectives");
  add_size(line, "--file_bandwidth", options.file_bandwidth, "of --suggest: files of a host");
  line.flag("--json", options.json, "one document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (options.model.empty() && !options.largest) command_line::usage_error("MODEL.pt is missing");
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda") {
    command_line::usage_error(fmt::format("--device must be auto, cpu or cuda, not '{}'", options.device));
  }
  if (options.measure && options.activations) {
    command_line::usage_error("--measure and --activations exclude each other");
  }
  return options;
}

}  // namespace dslaunch::worker
