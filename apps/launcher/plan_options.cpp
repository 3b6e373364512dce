#include "plan_options.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"
#include "command_line.hpp"
#include "config/enum_names.hpp"

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
  int num_gpus = 1, num_nodes = 1;
};

constexpr const char* kUsage =
    "usage: dslaunch plan --schedule P,M [options]\n"
    "       dslaunch plan --params N --largest_layer N [options]";
constexpr const char* kHelp =
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

// Options of one form beside the other.
void require_one_form(CommandLine& line, const Given& given) {
  const auto refuse = [&](std::initializer_list<const char*> options, const char* form) {
    for (const char* option : options) {
      if (line.app().count(option) > 0) usage_error(fmt::format("{} belongs to 'dslaunch plan {}'", option, form));
    }
  };
  if (given.schedule.empty() && given.parameters.empty()) {
    usage_error("plan what? dslaunch plan --schedule P,M, or dslaunch plan --params N --largest_layer N");
  }
  if (!given.schedule.empty()) {
    refuse({"--params", "--largest_layer", "--num_gpus", "--num_nodes"}, "--params N");
  } else {
    refuse({"--kind", "--times"}, "--schedule P,M");
  }
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
  line.value_from(1, "--num_gpus", given.num_gpus, "GPUs of each host (1)", "N");
  line.value_from(1, "--num_nodes", given.num_nodes, "hosts (1)", "N");
  line.flag("--json", options.json, "one JSON document on standard output");
  const auto refuse_model = [&](const std::vector<std::string>& leftover) {
    if (line.app().count("--schedule") > 0 || line.app().count("--params") > 0 || leftover.empty() ||
        leftover[0].starts_with("-"))
      return;
    usage_error(
        fmt::format("plan of a model file is not supported yet ('{}'); with its numbers: dslaunch plan --params N "
                    "--largest_layer N; the schedule of a pipeline: dslaunch plan --schedule P,M",
                    leftover[0]));
  };
  if (!line.parse(arguments, refuse_model)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'plan'");
  require_one_form(line, given);
  if (given.schedule.empty()) {
    options.form = estimate_plan(given);
  } else {
    options.form = schedule_plan(given);
  }
  return options;
}

}  // namespace dslaunch::launcher
