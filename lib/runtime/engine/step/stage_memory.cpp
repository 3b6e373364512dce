#include "runtime/engine/step/stage_memory.hpp"

#include <cstddef>

#include "base/format.hpp"
#include "runtime/pipeline/timeline.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

int live_activations(pipeline::ScheduleKind kind, int num_stages, int stage, int num_micro_batches) {
  return peak_memory(pipeline::plan_schedule(kind, num_stages, stage, num_micro_batches)).live_activations;
}

std::string counted(int micro_batches) {
  return fmt::format("{} micro batch{}", micro_batches, micro_batches == 1 ? "" : "es");
}

}  // namespace

std::string describe_stage_memory(const model::StageFacts& stage, pipeline::ScheduleKind kind, int num_micro_batches) {
  const auto num_stages = static_cast<int>(stage.plan.stages.size());
  const int own = live_activations(kind, num_stages, stage.stage, num_micro_batches);
  const int last = live_activations(kind, num_stages, num_stages - 1, num_micro_batches);
  const auto layers = describe_stages(stage.plan)[static_cast<size_t>(stage.stage)];
  std::string text = fmt::format("This is {}. It keeps the activations of {}", layers, counted(own));
  if (own != last) text += fmt::format(", the last stage those of {}", counted(last));
  text += ". Use a smaller micro batch with more accumulation steps, or \"activation_checkpointing\"";
  const int with_1f1b = live_activations(pipeline::ScheduleKind::k1F1B, num_stages, stage.stage, num_micro_batches);
  if (with_1f1b < own) text += fmt::format("; \"pipeline.schedule\": \"1f1b\" keeps those of {}", counted(with_1f1b));
  return text + fmt::format("; another \"pipeline.partition\" than \"{}\", or more stages, gives this one fewer layers",
                            stage.plan.partition);
}

}  // namespace dslaunch::runtime::engine::step
