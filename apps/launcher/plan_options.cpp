#include "plan_options.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"
#include "command_line.hpp"
#include "config/enum_names.hpp"
#include "config/load.hpp"
#include "everyday_options.hpp"
#include "run_flags.hpp"

namespace dslaunch::launcher {
namespace {

// Beyond these a table serves nobody.
constexpr int kMaxStages = 128, kMaxMicroBatches = 1024, kMaxSlots = 9;

// Whole numbers from 1 to `most`; empty if `text` is anything else.
std::vector<int> read_counts(const std::string& text, const std::vector<int>& most) {
  std::vector<int> counts;
  const auto words = split(text, ',');
  for (size_t i = 0; i < words.size() && words.size() == most.size(); ++i) {
    const auto count = parse_int<int>(words[i], 1);
    if (!count || *count > most[i]) return {};
    counts.push_back(*count);
  }
  return counts;
}

void read_schedule(const std::string& text, SchedulePlan& to) {
  const auto counts = read_counts(text, {kMaxStages, kMaxMicroBatches});
  if (counts.empty()) {
    usage_error(fmt::format("--schedule {}: write P,M: 1 to {} pipeline stages and 1 to {} micro batches, as 4,8", text,
                            kMaxStages, kMaxMicroBatches));
  }
  to.num_stages = counts[0];
  to.num_micro_batches = counts[1];
}

void read_times(const std::string& text, SchedulePlan& to) {
  const auto slots = read_counts(text, {kMaxSlots, kMaxSlots, kMaxSlots});
  if (slots.empty()) {
    usage_error(
        fmt::format("--times {}: write F,I,W: the time slots, 1 to {}, of a forward, an input gradient and a "
                    "weight gradient, as 1,1,1",
                    text, kMaxSlots));
  }
  to.times.forward = slots[0];
  to.times.input_gradient = slots[1];
  to.times.weight_gradient = slots[2];
}

runtime::pipeline::ScheduleKind kind_of(const std::string& text) {
  for (const auto& row : config::kPipelineSchedules) {
    if (row.text == text) return row.value;
  }
  usage_error(fmt::format("--kind {}: expected 1f1b, gpipe or zb-h1", text));
}

// "2783959040", "2.7e9", "7B", "124M"; empty for anything else.
std::optional<int64_t> read_amount(std::string text) {
  static const std::map<char, double> kUnits{{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  const auto unit = text.empty() ? kUnits.end() : kUnits.find(static_cast<char>(std::toupper(text.back())));
  if (unit != kUnits.end()) text.pop_back();
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (unit != kUnits.end()) number *= unit->second;
  // Exact as an int64, and with room for the bytes.
  if (error != std::errc() || stop != end || !(number >= 1) || number > 1e15) return std::nullopt;
  return std::llround(number);
}

int64_t amount_of(const char* option, const std::string& text) {
  const auto amount = read_amount(text);
  if (!amount) {
    usage_error(
        fmt::format("{} {}: expected a number of parameters up to 1e15, as 2783959040, 2.7e9 or 7B", option, text));
  }
  return *amount;
}

// The texts of the options as they were given.
struct Given {
  std::string schedule, kind = "1f1b", times = "1,1,1", parameters, largest_layer;
  std::string model, config, device, gpu_memory, host_memory, activations, suggest;
  std::optional<double> tflops;
  std::string device_bandwidth, link_bandwidth, host_bandwidth, network_bandwidth, file_bandwidth;
  std::vector<std::string> sets;
  config::RunFlags flags;
  int num_gpus = 1, num_nodes = 1;
  bool measure = false, largest = false;
};

constexpr const char* kUsage =
    "usage: dslaunch plan MODEL.pt [--config FILE] [options]\n"
    "       dslaunch plan --largest [--config FILE] [options]\n"
    "       dslaunch plan --params N --largest_layer N [options]\n"
    "       dslaunch plan --schedule P,M [options]";
constexpr const char* kHelp =
    "  dslaunch plan model.pt --config ds.json                               on this machine\n"
    "  dslaunch plan model.pt --config ds.json --num_gpus 8 --num_nodes 4 --gpu_memory 80GiB --host_memory 1TiB\n"
    "  dslaunch plan model.pt --config ds.json --gpu_memory 80GiB --measure  with the activations of a micro batch\n"
    "  dslaunch plan model.pt --config ds.json --suggest fast.json           the fastest setting that fits\n"
    "  dslaunch plan --largest --num_gpus 8 --gpu_memory 80GiB --host_memory 1TiB\n"
    "The memory of each rank for parameters, gradients, optimizer state and buffers, on GPU, host and in files, for\n"
    "the stages of ZeRO and with and without offload, and what fits; for hosts that need not exist. --largest: the\n"
    "largest GPT for each of them.\n"
    "\n"
    "  dslaunch plan --schedule 4,8                  4 pipeline stages, 8 micro batches in a step\n"
    "  dslaunch plan --schedule 4,8 --kind zb-h1     with split backwards\n"
    "  dslaunch plan --schedule 4,8 --times 2,2,1    a backward takes 3 slots, a forward 2\n"
    "  dslaunch plan --schedule 8,32 --json\n"
    "What each stage computes in each time slot: F a forward, B a backward, I and W its two parts (input\n"
    "gradient, weight gradient), with the number of the micro batch; '.' where the stage waits. Transfers\n"
    "take no time here. Below it the bubble (the share of the time in which stages wait), and for how\n"
    "many micro batches at a time a stage keeps its activations.\n"
    "\n"
    "  dslaunch plan --params 2783959040 --largest_layer 65798144 --num_gpus 8\n"
    "  dslaunch plan --params 7B --largest_layer 131M --num_gpus 8 --num_nodes 4\n"
    "DeepSpeed's estimates of the memory for parameters, gradients and optimizer state, at ZeRO 2 and 3, with\n"
    "and without offload; for hosts that need not exist.\n";

SchedulePlan schedule_plan(const Given& given) {
  SchedulePlan plan;
  read_schedule(given.schedule, plan);
  plan.kind = kind_of(given.kind);
  read_times(given.times, plan);
  return plan;
}

EstimatePlan estimate_plan(const Given& given) {
  EstimatePlan plan;
  plan.inputs.num_parameters = amount_of("--params", given.parameters);
  if (!given.largest_layer.empty()) plan.inputs.largest_layer = amount_of("--largest_layer", given.largest_layer);
  if (plan.inputs.largest_layer > plan.inputs.num_parameters) {
    usage_error(fmt::format("--largest_layer {} is more than --params {}, which counts the whole model",
                            given.largest_layer, given.parameters));
  }
  plan.inputs.gpus_per_host = given.num_gpus;
  plan.inputs.num_hosts = given.num_nodes;
  return plan;
}

// The forms of the command, and the options that each takes.
enum Form : unsigned { kOfSchedule = 1, kOfParameters = 2, kOfModel = 4, kOfLargest = 8 };
constexpr std::pair<Form, const char*> kForms[] = {
    {kOfSchedule, "--schedule P,M"}, {kOfParameters, "--params N"}, {kOfModel, "MODEL.pt"}, {kOfLargest, "--largest"}};
constexpr std::pair<const char*, unsigned> kOptions[] = {
    {"--params", kOfParameters},
    {"--largest_layer", kOfParameters},
    {"--kind", kOfSchedule},
    {"--times", kOfSchedule},
    {"--num_gpus", kOfParameters | kOfModel | kOfLargest},
    {"--num_nodes", kOfParameters | kOfModel | kOfLargest},
    {"MODEL", kOfModel},
    {"--largest", kOfLargest},
    {"--config", kOfModel | kOfLargest},
    {"--set", kOfModel | kOfLargest},
    {"--device", kOfModel | kOfLargest},
    {"--gpu_memory", kOfModel | kOfLargest},
    {"--host_memory", kOfModel | kOfLargest},
    {"--activations", kOfModel | kOfLargest},
    {"--measure", kOfModel},
    {"--suggest", kOfModel},
    {"--tflops", kOfModel},
    {"--device_bandwidth", kOfModel},
    {"--link_bandwidth", kOfModel},
    {"--host_bandwidth", kOfModel},
    {"--network_bandwidth", kOfModel},
    {"--file_bandwidth", kOfModel},
    {"--stages", kOfModel | kOfLargest},
    {"--tp", kOfModel},
    {"--data", kOfModel},
    {"--inputs", kOfModel},
    {"--labels", kOfModel},
    {"--loss", kOfModel},
};

Form form_of(const Given& given) {
  if (!given.schedule.empty()) return kOfSchedule;
  if (!given.parameters.empty()) return kOfParameters;
  if (given.largest) return kOfLargest;
  if (!given.model.empty()) return kOfModel;
  usage_error(
      "plan what? dslaunch plan MODEL.pt [--config FILE], --largest, --params N --largest_layer N, or --schedule P,M");
}

void require_one_form(CommandLine& line, const Given& given) {
  const Form form = form_of(given);
  for (const auto& [option, forms] : kOptions) {
    if (line.app().count(option) == 0 || (forms & form) != 0) continue;
    std::vector<std::string> takers;
    for (const auto& [taker, usage] : kForms) {
      if ((forms & taker) != 0) takers.push_back(fmt::format("'dslaunch plan {}'", usage));
    }
    const std::string word = option == std::string("MODEL") ? "'" + given.model + "'" : option;
    usage_error(fmt::format("{} belongs to {}", word, fmt::join(takers, " and ")));
  }
}

void check_size(const char* option, const std::string& text) {
  if (text.empty() || parse_byte_size(text)) return;
  usage_error(fmt::format("{} {}: expected a size with a unit, as 80GiB, 80G or 85GB", option, text));
}

// For dsworker, which plans models.
ModelPlan model_plan(const Given& given, bool json) {
  if (!given.device.empty() && given.device != "auto" && given.device != "cpu" && given.device != "cuda") {
    usage_error(fmt::format("--device {}: expected auto, cpu or cuda", given.device));
  }
  if (!given.suggest.empty() && !given.suggest.ends_with(".json")) {
    usage_error(
        fmt::format("--suggest {}: expected the file to write the config to, as fast.json; what GPUs have is "
                    "given with --gpu_memory and --tflops",
                    given.suggest));
  }
  if (given.measure && !given.activations.empty()) usage_error("--measure and --activations exclude each other");
  for (const auto& text : given.sets) config::parse_set_option(text);
  check_run_flags(given.flags);
  ModelPlan plan{given.model, {"plan"}};
  auto& words = plan.worker_words;
  const auto pass = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  if (!given.model.empty()) words.push_back(given.model);
  pass("--config", given.config);
  for (const auto& text : given.sets) pass("--set", text);
  for (const auto& word : config::words_of(given.flags)) words.push_back(word);
  pass("--device", given.device);
  pass("--num_gpus", std::to_string(given.num_gpus));
  pass("--num_nodes", std::to_string(given.num_nodes));
  for (const auto& [name, text] : {std::pair{"--gpu_memory", given.gpu_memory},
                                   {"--host_memory", given.host_memory},
                                   {"--activations", given.activations},
                                   {"--device_bandwidth", given.device_bandwidth},
                                   {"--link_bandwidth", given.link_bandwidth},
                                   {"--host_bandwidth", given.host_bandwidth},
                                   {"--network_bandwidth", given.network_bandwidth},
                                   {"--file_bandwidth", given.file_bandwidth}}) {
    check_size(name, text);
    pass(name, text);
  }
  pass("--suggest", given.suggest);
  if (given.tflops) pass("--tflops", fmt::format("{}", *given.tflops));
  if (given.measure) words.emplace_back("--measure");
  if (given.largest) words.emplace_back("--largest");
  if (json) words.emplace_back("--json");
  return plan;
}

void add_model_options(CommandLine& line, Given& given) {
  line.app().add_option("MODEL", given.model, "a model file written by torch.jit.save");
  line.flag("--largest", given.largest, "the largest GPT that fits, for each stage of ZeRO and choice of offload");
  line.value("--config", given.config, "JSON (DeepSpeed's keys and comments) or YAML; without it the defaults", "FILE");
  line.value("--set", given.sets, "overrides the config; repeatable", "KEY=VALUE")->allow_extra_args(false);
  line.value("--device", given.device, "auto: GPUs if there is one or --gpu_memory is given, else CPU ranks",
             "auto|cpu|cuda");
  line.value("--gpu_memory", given.gpu_memory, "of each GPU, as 80GiB; without it that of the GPU of this machine",
             "SIZE");
  line.value("--host_memory", given.host_memory, "of each host; without it what this machine has available", "SIZE");
  line.value("--activations", given.activations, "of one rank, on top of its state", "SIZE");
  line.flag("--measure", given.measure, "run a forward and a backward of one micro batch for its activations");
  line.value("--suggest", given.suggest, "write the config that fits with the least predicted step time", "FILE.json");
  const char* rate = "of --suggest, for each second; without it measured here";
  line.value_from(0.001, "--tflops", given.tflops, "a rank's matrix products; without it measured here", "N");
  line.value("--device_bandwidth", given.device_bandwidth, std::string("GPU memory ") + rate, "SIZE");
  line.value("--link_bandwidth", given.link_bandwidth, std::string("GPU to host ") + rate, "SIZE");
  line.value("--host_bandwidth", given.host_bandwidth, std::string("host memory ") + rate, "SIZE");
  line.value("--network_bandwidth", given.network_bandwidth, "what a rank sends in collectives each second", "SIZE");
  line.value("--file_bandwidth", given.file_bandwidth, "files of a host each second; without it none are suggested",
             "SIZE");
  add_run_flags(line, config::FlagGroup::kParallel, given.flags);
  add_run_flags(line, config::FlagGroup::kData, given.flags);
}

}  // namespace

std::optional<PlanOptions> read_plan_options(const Arguments& arguments) {
  PlanOptions options;
  Given given;
  CommandLine line("dslaunch plan", kUsage, kHelp);
  line.value("--schedule", given.schedule, "pipeline stages and micro batches of a step", "P,M");
  line.value("--kind", given.kind, "the schedule (1f1b)", "1f1b|gpipe|zb-h1");
  line.value("--times", given.times,
             "time slots of a forward, an input gradient and a weight gradient; a backward takes I + W (1,1,1)",
             "F,I,W");
  line.value("--params", given.parameters, "parameters of a model: a number, or as 2.7e9 or 7B", "N");
  line.value("--largest_layer", given.largest_layer, "parameters of its largest layer, for ZeRO 3", "N");
  line.value_from(1, "--num_gpus", given.num_gpus, "GPUs of each host; on CPU the number of ranks (1)", "N");
  line.value_from(1, "--num_nodes", given.num_nodes, "hosts (1)", "N");
  add_model_options(line, given);
  line.flag("--json", options.json, "one JSON document on standard output");
  const auto on_leftover = [&](const auto& leftover) { answer_wish(arguments.words, leftover); };
  if (!line.parse(arguments, on_leftover)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'plan'");
  require_one_form(line, given);
  switch (form_of(given)) {
    case kOfSchedule:
      options.form = schedule_plan(given);
      break;
    case kOfParameters:
      options.form = estimate_plan(given);
      break;
    default:
      options.form = model_plan(given, options.json);
  }
  return options;
}

}  // namespace dslaunch::launcher
