#include "runtime/engine/setup/load_model.hpp"

#include "base/error.hpp"
#include "runtime/model/script/load_script_model.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

std::string partition_of(const config::Pipeline& pipeline) {
  switch (pipeline.partition) {
    case config::PipelinePartition::kTime:
      return "time";
    case config::PipelinePartition::kUniform:
      return "uniform";
    case config::PipelinePartition::kParameters:
      return "parameters";
    case config::PipelinePartition::kType:
      return "type:" + pipeline.layer_type;
  }
  throw InternalError(__FILE__, __LINE__, "partition_of", "unknown partition method");
}

}  // namespace

std::unique_ptr<model::Model> load_model(const std::string& path, const config::JobConfig& config, at::Device device) {
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device);
  return model::script::load_script_model(path, config.units, {config.kernels, precision.compute_dtype});
}

std::unique_ptr<model::Model> load_stage(const std::string& path, const config::JobConfig& config, at::Device device,
                                         int num_stages, int stage) {
  if (num_stages == 1) return load_model(path, config, device);
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device);
  const model::StageOptions options{
      .num_stages = num_stages,
      .stage = stage,
      .partition = partition_of(config.pipeline),
      .defers_weight_gradients = config.pipeline.schedule == config::PipelineSchedule::kZbH1};
  return model::script::load_script_stage(path, config.units, {config.kernels, precision.compute_dtype}, options);
}

}  // namespace dslaunch::runtime::engine::setup
