#include "runtime/engine/setup/load_model.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/setup/pretrained_values.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/precision/autocast_scope.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

using model::torchscript::ScriptFile;

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
    case config::PipelinePartition::kLayers:
      return "layers";
  }
  throw InternalError(__FILE__, __LINE__, "partition_of", "unknown partition method");
}

model::GraphPassOptions passes_of(const config::JobConfig& config, const precision::PrecisionChoice& precision,
                                  const device::Device& device, const ProgramLogPtr& programs = {}) {
  // Timings choose differently from one host to the next.
  const bool measures = config.kernels.gemm_autotuning && !config.deterministic;
  if (config.fp8 && precision.compute_dtype != at::kBFloat16) {
    throw UserError(
        ExitCode::kBadInput,
        "'fp8.enabled' needs a run in bf16, and bf16.enabled \"auto\" is fp32 on CPU ranks; set bf16.enabled "
        "to true");
  }
  return {.kernels = config.kernels,
          .compute_dtype = precision.compute_dtype,
          .fp8 = config.fp8,
          .keeps_fp8_weights = config.zero.stage < 3,  // parameters are there once
          .chunks_cross_entropy = device.at().is_cuda(),
          .recomputes_outputs = config.recomputation.selective,
          .kernel_library = device.kernels(),
          .gemms = measures ? device.gemms() : device::GemmCachePtr(),
          .programs = programs};
}

model::placement::TensorParallelOptions tensor_options_of(const config::JobConfig& config, int size, int rank) {
  return {.size = size,
          .rank = rank,
          .rules = config.tensor_parallel.rules,
          .needs_rules = config.tensor_parallel.needs_rules,
          .probe = config.tensor_parallel.probe,
          .sequence_parallel = config.tensor_parallel.sequence_parallel,
          .overlap = config.tensor_parallel.overlap};
}

// `unmeasured`: the reason that the layers were not timed, for the message.
std::unique_ptr<model::Model> load_part_of(const ScriptFile& file, const config::JobConfig& config,
                                           const device::Device& device, const ModelPart& part,
                                           const std::optional<model::LayerMeasurement>& measurement,
                                           const ProgramLogPtr& programs, const std::string& unmeasured = {}) {
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device.at());
  const auto passes = passes_of(config, precision, device, programs);
  const auto tensor = tensor_options_of(config, part.tensor_ranks, part.tensor_rank);
  const model::StageOptions stages{
      .num_stages = part.num_stages,
      .stage = part.stage,
      .partition = partition_of(config.pipeline),
      .first_layers = {config.pipeline.first_layers.begin(), config.pipeline.first_layers.end()},
      .measurement = measurement,
      .unmeasured = unmeasured,
      .defers_weight_gradients = config.pipeline.schedule == config::PipelineSchedule::kZbH1};
  auto model = part.num_stages == 1 ? model::torchscript::load_script_model(file, config.units, passes, tensor)
                                    : model::torchscript::load_script_stage(file, config.units, passes, stages, tensor);
  if (config.init) take_pretrained_values(*model, *config.init, file.path());
  return model;
}

// The arrays of a micro batch of the job, on the rank that reads it.
std::vector<model::ExampleInput> example_inputs(const ScriptFile& file, const config::JobConfig& config,
                                                const device::Device& device, const comm::Mesh& mesh) {
  const auto first = load_part_of(file, config, device, {.num_stages = mesh.pipe}, {}, {});
  const auto dtype = precision::choose_precision(config.precision, config.keep_batch_norm, device.at()).compute_dtype;
  const int quiet_rank = mesh.size() - 1;  // rank 0 says how arrays are used when the job opens its data
  const auto data = open_training_data(first->facts, config, mesh, quiet_rank, dtype, /*pin=*/false);
  const bool has_train = data.train != nullptr;
  BatchLoader loader(has_train ? data.train : data.eval, has_train ? data.train_arrays : data.eval_arrays, config.data,
                     has_train ? data.loader : data.eval_loader, {});
  const MicroBatch batch = on_device(loader.next(), at::kCPU);
  std::vector<model::ExampleInput> out;
  for (const auto* arrays : {&batch.inputs, &batch.labels}) {
    for (const auto& array : *arrays) {
      // Labels only where the model computes its loss from them.
      if (out.size() == first->facts.inputs.names.size()) break;
      out.push_back({array.sizes().vec(), array.scalar_type()});
    }
  }
  return out;
}

Result<model::LayerMeasurement> measure(const ScriptFile& file, const config::JobConfig& config,
                                        const device::Device& device, const comm::Mesh& mesh) {
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device.at());
  const auto inputs = example_inputs(file, config, device, mesh);
  const precision::AutocastScope autocast(device.at(), precision::to_torch(config.autocast));
  return model::torchscript::measure_script_layers(file, config.units, passes_of(config, precision, device), inputs,
                                                   device.at());
}

}  // namespace

std::unique_ptr<model::Model> load_part(const std::string& path, const config::JobConfig& config,
                                        const device::Device& device, const comm::Groups& groups,
                                        const ProgramLogPtr& programs) {
  std::optional<model::LayerMeasurement> measurement;
  std::string unmeasured;  // on rank 0, which reports it
  const bool is_measured = groups.pipe != nullptr && config.pipeline.partition == config::PipelinePartition::kTime;
  const bool measures = is_measured && groups.world.rank() == 0;
  const ScriptFile file(path, /*loads_again=*/measures);
  if (is_measured) {
    std::vector<int64_t> message;
    if (measures) {
      // Errors in the model and the data are met again by all ranks, which report them as one.
      try {
        const auto measured = measure(file, config, device, groups.mesh);
        if (measured.ok()) message = model::encode(*measured);
        if (!measured.ok()) unmeasured = measured.error();
      } catch (const UserError& error) {
        log::debug("no layers measured: {}", error.what());
      }
    }
    const std::string own(reinterpret_cast<const char*>(message.data()), message.size() * sizeof(int64_t));
    const std::string of_rank_0 = gather_texts(groups.world, device.at(), own).front();
    message.resize(of_rank_0.size() / sizeof(int64_t));
    std::memcpy(message.data(), of_rank_0.data(), of_rank_0.size());
    if (!message.empty()) measurement = model::decode_measurement(message);
  }
  const ModelPart part{groups.mesh.pipe, groups.own.pipe, groups.mesh.tensor, groups.own.tensor};
  auto model = load_part_of(file, config, device, part, measurement, programs, unmeasured);
  if (groups.tensor != nullptr) {
    model->runnable->set_tensor_group(*groups.tensor);
    model->facts.placements->probe = model->runnable->probe_split(device.at());
    const auto& not_compared = model->facts.placements->probe->not_compared;
    model->facts.notes.insert(model->facts.notes.end(), not_compared.begin(), not_compared.end());
  }
  return model;
}

config::ModelDefaults read_model_defaults(const std::string& path) {
  auto metadata = read_model_metadata(path);
  return {metadata.averages_over_labels, metadata.recomputes, std::move(metadata.recomputed_units)};
}

std::unique_ptr<model::Model> load_model(const std::string& path, const config::JobConfig& config,
                                         const device::Device& device, const ProgramLogPtr& programs) {
  return load_part_of(path, config, device, {}, {}, programs);
}

std::unique_ptr<model::Model> load_part(const std::string& path, const config::JobConfig& config,
                                        const device::Device& device, const ModelPart& part,
                                        const std::optional<model::LayerMeasurement>& measurement,
                                        const ProgramLogPtr& programs) {
  return load_part_of(path, config, device, part, measurement, programs);
}

model::ProbeReport probe_split(const std::string& path, const config::JobConfig& config, const device::Device& device) {
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device.at());
  return model::torchscript::probe_script_split(
      path, config.units, passes_of(config, precision, device),
      tensor_options_of(config, static_cast<int>(config.tensor_parallel.size), /*rank=*/0));
}

model::RecomputationOptions recomputation_options(const config::JobConfig& config, at::Device device) {
  const auto& wanted = config.recomputation;
  return {wanted.number_checkpoints,
          std::max<int64_t>(1, config.pipeline.activation_checkpoint_interval),
          wanted.cpu_checkpointing,
          wanted.contiguous_memory_optimization,
          wanted.partition_activations && !config.tensor_parallel.sequence_parallel,
          wanted.synchronize_checkpoint_boundary,
          wanted.profile,
          device};
}

}  // namespace dslaunch::runtime::engine::setup
