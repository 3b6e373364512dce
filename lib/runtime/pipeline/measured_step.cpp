#include "runtime/pipeline/measured_step.hpp"

#include <algorithm>
#include <sstream>

#include "base/format.hpp"
#include "runtime/pipeline/simulate.hpp"

namespace dslaunch::runtime::pipeline {
namespace {

using enum ActionKind;

constexpr size_t kMaxWidth = 120;  // of a line of the table, in characters
constexpr double kMaxSlots = 200;  // of the table

double mean_time(const StageTimeline& stage, ActionKind kind) {
  double sum = 0, count = 0;
  for (const auto& timed : stage) {
    if (timed.action.kind != kind) continue;
    sum += timed.end - timed.begin;
    count += 1;
  }
  return count == 0 ? 0 : sum / count;
}

// A backward that is not split is all input gradient.
ActionTimes mean_times(const StageTimeline& stage) {
  return {mean_time(stage, kForward), mean_time(stage, kBackward) + mean_time(stage, kInputGradient),
          mean_time(stage, kWeightGradient)};
}

int num_micro_batches(const Timeline& timeline) {
  int count = 0;
  for (const auto& timed : timeline.stages.at(0)) count += timed.action.kind == kForward ? 1 : 0;
  return count;
}

double choose_slot(const Timeline& timeline, const std::vector<ActionTimes>& times) {
  double forward = 0;
  for (const auto& each : times) forward += each.forward / static_cast<double>(times.size());
  return std::max({forward, timeline.duration() / kMaxSlots, 1e-6});
}

std::string describe_stage(const Timeline& timeline, size_t stage, const ActionTimes& times, bool is_split) {
  std::string text = fmt::format("stage {}: waits {:.1f} % of the step; forward {:.3g} ms", stage,
                                 100 * timeline.idle_share(stage), times.forward);
  if (!is_split) return text + fmt::format(", backward {:.3g} ms", times.input_gradient);
  return text + fmt::format(", input gradient {:.3g} ms, weight gradient {:.3g} ms", times.input_gradient,
                            times.weight_gradient);
}

}  // namespace

std::vector<std::string> describe_measured_step(const Timeline& timeline, ScheduleKind kind) {
  const auto num_stages = static_cast<int>(timeline.stages.size());
  const int micro_batches = num_micro_batches(timeline);
  std::vector<ActionTimes> times;
  for (const auto& stage : timeline.stages) times.push_back(mean_times(stage));
  const bool is_split = kind == ScheduleKind::kZbH1 && num_stages > 1;
  const double slot = choose_slot(timeline, times);
  const Timeline expected =
      simulate(plan_all_stages(kind, num_stages, micro_batches), times, TransferOrder::kConcurrent).timeline;

  std::vector<std::string> lines{
      fmt::format("pipeline as measured: {}, {} stages, {} micro batches; a slot is {:.3g} ms", name_of(kind),
                  num_stages, micro_batches, slot)};
  std::istringstream table(format_table(timeline, slot, kMaxWidth));
  for (std::string line; std::getline(table, line);) lines.push_back(line);
  lines.push_back(fmt::format("bubble {:.1f} % of {:.3g} ms; {:.1f} % of {:.3g} ms if transfers took no time",
                              100 * timeline.bubble(), timeline.duration(), 100 * expected.bubble(),
                              expected.duration()));
  for (size_t stage = 0; stage < times.size(); ++stage) {
    lines.push_back(describe_stage(timeline, stage, times[stage], is_split));
  }
  return lines;
}

}  // namespace dslaunch::runtime::pipeline
