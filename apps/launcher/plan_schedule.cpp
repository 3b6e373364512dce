// `dslaunch plan --schedule P,M`: the schedule of a pipeline as a table, its bubble and its memory.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "plan_forms.hpp"
#include "runtime/pipeline/timeline.hpp"

namespace dslaunch::launcher {
namespace {

using namespace runtime::pipeline;
using Json = nlohmann::ordered_json;
using Plans = std::vector<std::vector<Action>>;

// 0 where standard output is not a terminal: a file has lines of any length.
size_t terminal_width() {
  winsize size{};
  const bool is_known = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return is_known ? size.ws_col : 0;
}

std::string counted(int count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

// All times are sums of whole slots.
int64_t slots(double time) {
  return std::llround(time);
}

// With one stage no backward is split.
bool splits_backward(const SchedulePlan& options) {
  return options.kind == ScheduleKind::kZbH1 && options.num_stages > 1;
}

std::string describe_times(const SchedulePlan& options) {
  const ActionTimes& times = options.times;
  if (splits_backward(options)) {
    return fmt::format("F (forward) takes {}, I (input gradient) {}, W (weight gradient) {}", slots(times.forward),
                       slots(times.input_gradient), slots(times.weight_gradient));
  }
  return fmt::format("F (forward) takes {}, B (backward) {}", slots(times.forward),
                     slots(times.of(ActionKind::kBackward)));
}

std::string stage_table(const SchedulePlan& options, const Plans& plans, const Timeline& timeline) {
  const bool is_split = splits_backward(options);
  std::string text = fmt::format("stage   idle    micro batches with live activations{}\n",
                                 is_split ? ", with deferred weight gradients" : "");
  for (size_t stage = 0; stage < plans.size(); ++stage) {
    const StageMemory memory = peak_memory(plans[stage]);
    text += fmt::format("{:>5} {:>5.1f} %  {:>4}", stage, 100 * timeline.idle_share(stage), memory.live_activations);
    if (is_split) text += fmt::format(", {}", memory.deferred_weight_gradients);
    text += "\n";
  }
  return text;
}

std::string plan_text(const SchedulePlan& options, const Plans& plans, const Timeline& timeline) {
  return fmt::format("{}, {}, {}; in time slots, {}\n\n{}\nbubble {:.1f} % of {} slots\n\n{}",
                     runtime::pipeline::name_of(options.kind), counted(options.num_stages, "stage", "stages"),
                     counted(options.num_micro_batches, "micro batch", "micro batches"), describe_times(options),
                     format_table(timeline, 1, terminal_width()), 100 * timeline.bubble(), slots(timeline.duration()),
                     stage_table(options, plans, timeline));
}

// "send_activation"
std::string key_of(ActionKind kind) {
  std::string key(runtime::pipeline::name_of(kind));
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

Json actions_json(const StageTimeline& stage) {
  Json actions = Json::array();
  for (const auto& timed : stage) {
    actions.push_back({{"action", key_of(timed.action.kind)},
                       {"micro_batch", timed.action.micro_batch},
                       {"begin", slots(timed.begin)},
                       {"end", slots(timed.end)}});
  }
  return actions;
}

std::string plan_json(const SchedulePlan& options, const Plans& plans, const Timeline& timeline) {
  Json stages = Json::array();
  for (size_t stage = 0; stage < plans.size(); ++stage) {
    const StageMemory memory = peak_memory(plans[stage]);
    stages.push_back({{"stage", stage},
                      {"idle_share", timeline.idle_share(stage)},
                      {"peak_live_activations", memory.live_activations},
                      {"peak_deferred_weight_gradients", memory.deferred_weight_gradients},
                      {"actions", actions_json(timeline.stages[stage])}});
  }
  const ActionTimes& times = options.times;
  const Json document{{"schedule", runtime::pipeline::name_of(options.kind)},
                      {"num_stages", options.num_stages},
                      {"num_micro_batches", options.num_micro_batches},
                      {"slots",
                       {{"forward", slots(times.forward)},
                        {"input_gradient", slots(times.input_gradient)},
                        {"weight_gradient", slots(times.weight_gradient)}}},
                      {"duration", slots(timeline.duration())},
                      {"bubble", timeline.bubble()},
                      {"stages", std::move(stages)}};
  return dump_json(document, 2) + "\n";
}

}  // namespace

std::string describe(const SchedulePlan& plan, bool json) {
  const Plans plans = plan_all_stages(plan.kind, plan.num_stages, plan.num_micro_batches);
  const Timeline timeline = simulate(plans, {plan.times}, TransferOrder::kConcurrent).timeline;
  return json ? plan_json(plan, plans, timeline) : plan_text(plan, plans, timeline);
}

}  // namespace dslaunch::launcher
