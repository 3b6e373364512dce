// pipeline: the stages of a model, and what each does when.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("pipeline"),
    key<&JobConfig::pipeline, &Pipeline::stages>(
        "pipeline.stages", "the model is cut into so many stages, one per rank of a pipeline; auto: --stages, or 1")
        .min(1)
        .max(65536),
    rule_key("pipeline.partition", kString, "\"best\"",
             "what is balanced among the stages: time (measured; best means time, with deterministic parameters), "
             "uniform (layers), parameters, type:REGEX (layers whose class name matches); or layers:N,M (the first "
             "layer of each stage after the first, counted from 0)"),
    key_as<EnumMember<kPipelineSchedules>, &JobConfig::pipeline, &Pipeline::schedule>(
        "pipeline.schedule", "the order in which a stage takes micro batches forward and backward (dslaunch plan)"),
    key<&JobConfig::pipeline, &Pipeline::activation_checkpoint_interval>(
        "pipeline.activation_checkpoint_interval",
        "recompute blocks in backward, so many as one group instead of all their activations; 0: none")
        .min(0),
};

}  // namespace

std::span<const KeySpec> pipeline_keys() {
  return kRows;
}

}  // namespace dslaunch::config
