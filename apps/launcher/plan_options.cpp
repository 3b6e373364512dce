#include "plan_options.hpp"

#include <algorithm>
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

void read_schedule(const std::string& text, PlanOptions& to) {
  const auto counts = read_counts(text, {kMaxStages, kMaxMicroBatches});
  if (counts.empty()) {
    usage_error(fmt::format("--schedule {}: write P,M: 1 to {} pipeline stages and 1 to {} micro batches, as 4,8", text,
                            kMaxStages, kMaxMicroBatches));
  }
  to.num_stages = counts[0];
  to.num_micro_batches = counts[1];
}

void read_times(const std::string& text, PlanOptions& to) {
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

}  // namespace

std::optional<PlanOptions> read_plan_options(const Arguments& arguments) {
  PlanOptions options;
  std::string schedule, kind = "1f1b", times = "1,1,1";
  CommandLine line(
      "dslaunch plan", "usage: dslaunch plan --schedule P,M [options]",
      "  dslaunch plan --schedule 4,8                  4 pipeline stages, 8 micro batches in a step\n"
      "  dslaunch plan --schedule 4,8 --kind zb-h1     with split backwards\n"
      "  dslaunch plan --schedule 4,8 --times 2,2,1    a backward takes 3 slots, a forward 2\n"
      "  dslaunch plan --schedule 8,32 --json\n"
      "What each stage computes in each time slot: F a forward, B a backward, I and W its two parts (input\n"
      "gradient, weight gradient), with the number of the micro batch; '.' where the stage waits. Transfers\n"
      "take no time here. Below it the bubble (the share of the time in which stages wait), and for how\n"
      "many micro batches at a time a stage keeps its activations.\n");
  line.value("--schedule", schedule, "pipeline stages and micro batches of a step", "P,M");
  line.value("--kind", kind, "the schedule (1f1b)", "1f1b|gpipe|zb-h1");
  line.value("--times", times,
             "time slots of a forward, an input gradient and a weight gradient; a backward takes I + W (1,1,1)",
             "F,I,W");
  line.flag("--json", options.json, "one JSON document on standard output, with the times of all actions");
  const auto refuse_model = [&](const std::vector<std::string>& leftover) {
    if (line.app().count("--schedule") > 0 || leftover.empty() || leftover[0].starts_with("-")) return;
    usage_error(
        fmt::format("plan of a model is not supported yet ('{}'); it prints the schedule of a pipeline: dslaunch plan "
                    "--schedule P,M",
                    leftover[0]));
  };
  if (!line.parse(arguments, refuse_model)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'plan'");
  if (schedule.empty()) usage_error("which schedule? dslaunch plan --schedule P,M");
  read_schedule(schedule, options);
  options.kind = kind_of(kind);
  read_times(times, options);
  return options;
}

}  // namespace dslaunch::launcher
