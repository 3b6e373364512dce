#include "runtime/engine/step/sharding_choice.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/offload/gradient_files.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/offload/host_updates.hpp"
#include "runtime/offload/staged_copies.hpp"
#include "runtime/offload/upload_ring.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/gradient_norm.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

using memory_plan::Tier;

std::vector<at::ScalarType> compute_dtypes(const ParameterTable& table, const EngineOptions& options) {
  std::vector<at::ScalarType> out;
  for (const auto& parameter : table.parameters) {
    if (parameter.trainable && parameter.dtype == at::kDouble) {
      throw UserError(
          ExitCode::kBadInput,
          fmt::format("parameter '{}' is float64; master weights are float32, so export the model with .float()",
                      parameter.name));
    }
    out.push_back(options.dtypes(parameter.name, parameter.dtype));
  }
  return out;
}

// The factor by which gradients are divided before the sum: the number of ranks, a given part of it, or 1. fp16 ends at
// 65504, so with fp16 it is the number of ranks unless the user sets it (as in DeepSpeed's stages 1 to 3): a mean is
// not larger than its largest part, while a sum overflows the sooner, the more ranks there are.
double predivide(const config::JobConfig& config, const ShardingOptions& options, int data_ranks) {
  if (config.prescale_gradients) return data_ranks;
  if (config.gradient_predivide_factor != 1.0) return config.gradient_predivide_factor;
  const auto& dtypes = options.compute_dtypes;
  const bool sums_in_fp16 = options.communication_dtype
                                ? *options.communication_dtype == at::kHalf
                                : std::find(dtypes.begin(), dtypes.end(), at::kHalf) != dtypes.end();
  return sums_in_fp16 ? data_ranks : 1.0;
}

// Masters, moments and gradients lie in host memory or in files. Parameters lie in host memory, unless they are in
// files (StateLayout::is_stored). What the copy engine works on may be page-locked.
Tier tier_of(const config::Zero& zero, at::Device device, HostUse use) {
  const auto& optimizer = zero.offload_optimizer;
  const auto& parameters = zero.offload_param;
  if (use != HostUse::kParameter && optimizer.device == config::OffloadDevice::kFile) return Tier::kFile;
  const bool pins =
      (use == HostUse::kGradient && optimizer.pin_memory) || (use == HostUse::kParameter && parameters.pin_memory);
  return pins && !device.is_cpu() ? Tier::kPageLocked : Tier::kHost;
}

at::Tensor allocate_offloaded(const config::Zero& zero, at::Device device, int64_t numel, at::ScalarType dtype,
                              HostUse use) {
  if (tier_of(zero, device, use) == Tier::kPageLocked) return offload::map_page_locked_memory(numel, dtype, device);
  return offload::map_host_memory(numel, dtype);
}

constexpr int64_t kChunk = offload::kChunkMultiple;

// The elements that an update works on at once, at most. Where parameters are in files, it writes whole pages of them.
int64_t chunk_numel(const config::Zero& zero) {
  const int64_t numel = std::min(offload::HostUpdateOptions().chunk_numel, std::max<int64_t>(1, zero.sub_group_size));
  const bool writes_files = zero.stage == 3 && zero.offload_param.device == config::OffloadDevice::kFile;
  return writes_files ? std::max(kChunk, numel / kChunk * kChunk) : numel;
}

offload::PagedFileOptions file_options(const config::JobConfig& config) {
  offload::PagedFileOptions out;
  out.block_size = config.aio.block_size;
  out.queue_depth = static_cast<int>(config.aio.queue_depth);
  out.num_threads = static_cast<int>(config.aio.num_threads);
  return out;
}

ShardingOptions::Offload choose_offload(const config::JobConfig& config, const EngineOptions& options,
                                        int64_t num_moments) {
  ShardingOptions::Offload out;
  const auto& optimizer = config.zero.offload_optimizer;
  out.parameters = config.zero.stage == 3 && config.zero.offload_param.device != config::OffloadDevice::kNone;
  const bool offloads_state = optimizer.device != config::OffloadDevice::kNone && !options.for_evaluation;
  if (offloads_state) out.optimizer_share = optimizer.ratio;
  out.keeps_gradients = offloads_state && optimizer.delayed_update;
  const bool state_in_files = offloads_to_files(config);
  out.state_bytes = state_in_files ? 0 : (1 + num_moments) * static_cast<int64_t>(sizeof(float));
  out.buffer_bytes = [&config, num_moments, device = options.device](std::span<const int64_t> spans,
                                                                     std::span<const StoredSlice> stored) {
    const OffloadBuffers buffers = offload_buffers(config, num_moments, spans, stored, device);
    return buffers.host_bytes + buffers.page_locked_bytes;
  };
  for (const HostUse use : {HostUse::kState, HostUse::kGradient, HostUse::kParameter}) {
    out.tiers[static_cast<size_t>(use)] = tier_of(config.zero, options.device, use);
  }
  out.parameters_in_files = out.parameters && config.zero.offload_param.device == config::OffloadDevice::kFile;
  out.max_numel_in_memory = config.zero.offload_param.max_in_cpu;
  out.reserve = [ranks = options.ranks_of_host](int64_t bytes) {
    const auto available = read_available_memory();
    if (available) offload::require_host_memory({bytes, ranks}, *available);
  };
  out.allocate = [&zero = config.zero, device = options.device](int64_t numel, at::ScalarType dtype, HostUse use) {
    return allocate_offloaded(zero, device, numel, dtype, use);
  };
  out.sum_of_squares = [](const at::Tensor& values) { return optim::sum_of_squares({values}); };
  return out;
}

}  // namespace

ShardingOptions choose_sharding(const ParameterTable& table, const config::JobConfig& config,
                                const EngineOptions& options, int data_ranks, int64_t num_moments) {
  config::Zero zero = config.zero;
  solve_auto_sizes(table, zero);
  ShardingOptions out;
  out.stage = zero.stage;
  out.device = options.device;
  out.compute_dtypes = compute_dtypes(table, options);
  out.max_group_numel = std::max<int64_t>(1, std::min(*zero.reduce_bucket_size, zero.allgather_bucket_size));
  if (config.grad_accum_dtype) out.accumulation_dtype = precision::to_torch(*config.grad_accum_dtype);
  out.accumulates = config.batch.accumulation > 1 || config.pipeline.stages > 1;
  out.communication_dtype = precision::to_torch(config.communication_data_type);
  out.predivide = predivide(config, out, data_ranks);
  out.use_reduce_scatter = zero.reduce_scatter;
  out.use_all_gather = zero.allgather_partitions;
  out.persistence_threshold = *zero.param_persistence_threshold;
  out.model_persistence_threshold = zero.model_persistence_threshold;
  out.prefetch_numel = *zero.prefetch_bucket_size;
  out.max_live_numel = zero.max_live_parameters;
  out.max_reuse_numel = zero.max_reuse_distance;
  out.quantized_weights = zero.quantized_weights;
  out.quantized_frozen = zero.quantized_frozen;
  out.quantized_gradients = zero.quantized_gradients;
  if (zero.loco) out.loco = {zero.loco->beta, zero.loco->reset_interval};
  out.secondary_group = options.secondary_group;
  out.for_evaluation = options.for_evaluation;
  out.offload = choose_offload(config, options, num_moments);
  out.barrier = options.barrier;
  return out;
}

int64_t count_offloaded_moments(const ParameterTable& table, const config::JobConfig& config,
                                const optim::OptimizerGroups& groups, bool for_evaluation) {
  if (config.zero.offload_optimizer.device == config::OffloadDevice::kNone || for_evaluation) return 0;
  const auto optimizer = optim::make_flat_optimizer(groups, {&table});
  return static_cast<int64_t>(optimizer->moment_names(0).size());
}

bool is_staged(Tier tier, at::Device device) {
  return tier == Tier::kHost && !device.is_cpu();
}

int64_t host_update_numel(const config::Zero& zero, std::span<const int64_t> spans) {
  const int64_t largest = spans.empty() ? 0 : *std::max_element(spans.begin(), spans.end());
  return std::min(chunk_numel(zero), (largest + kChunk - 1) / kChunk * kChunk);
}

OffloadBuffers offload_buffers(const config::JobConfig& config, int64_t num_moments, std::span<const int64_t> spans,
                               std::span<const StoredSlice> stored, at::Device device) {
  OffloadBuffers out;
  if (!spans.empty()) {
    int64_t numel = host_update_numel(config.zero, spans);
    if (offloads_to_files(config)) {
      const auto options = state_file_options(config, num_moments);
      const auto file = offload::plan_state_file(options, {spans.begin(), spans.end()});
      numel = file.sub_group_numel;
      out.host_bytes += offload::state_file_memory(options, file);
      out.page_locked_bytes += offload::GradientFiles::kNumBlocks * offload::GradientFiles::block_bytes(numel);
    }
    out.page_locked_bytes += offload::UploadRing::memory(numel);
    if (is_staged(tier_of(config.zero, device, HostUse::kGradient), device)) {
      out.page_locked_bytes += offload::StagedCopies::memory();
    }
  }
  const auto& parameters = config.zero.offload_param;
  const bool any_in_memory = parameters.device == config::OffloadDevice::kHost ||
                             (parameters.device == config::OffloadDevice::kFile && parameters.max_in_cpu > 0);
  const bool offloads_parameters = config.zero.stage == 3 && any_in_memory;
  if (offloads_parameters && is_staged(tier_of(config.zero, device, HostUse::kParameter), device)) {
    out.page_locked_bytes += offload::StagedCopies::memory();
  }
  if (!stored.empty()) {
    const auto file = offload::plan_parameter_file(parameter_file_options(config), stored);
    const int64_t buffers = file.num_buffers * file.buffer_bytes;
    out.page_locked_bytes += buffers;
    out.host_bytes += offload::parameter_file_memory(file) - buffers;
  }
  return out;
}

bool offloads_to_files(const config::JobConfig& config) {
  return config.zero.offload_optimizer.device == config::OffloadDevice::kFile;
}

offload::StateFileOptions state_file_options(const config::JobConfig& config, int64_t num_moments) {
  offload::StateFileOptions out{file_options(config)};
  out.directories = config.zero.offload_optimizer.nvme_path;
  out.directory_key = "zero_optimization.offload_optimizer.nvme_path";
  out.sub_group_numel = chunk_numel(config.zero);
  out.num_arrays = 1 + static_cast<size_t>(num_moments);
  out.num_gradient_areas = config.zero.offload_optimizer.delayed_update ? 2 : 1;
  out.stages_parameters = config.zero.offload_optimizer.delayed_update;
  out.num_buffers = static_cast<int>(config.zero.offload_optimizer.buffer_count);
  return out;
}

offload::ParameterFileOptions parameter_file_options(const config::JobConfig& config) {
  const auto& settings = config.zero.offload_param;
  offload::ParameterFileOptions out{file_options(config)};
  out.directories = settings.nvme_path;
  out.directory_key = "zero_optimization.offload_param.nvme_path";
  out.content = "offloaded parameters";
  out.buffer_numel = settings.buffer_size;
  out.num_buffers = static_cast<int>(settings.buffer_count);
  return out;
}

int64_t width_of(const ParameterTable& table) {
  int64_t norm_width = 0, any_width = 1;
  for (const auto& parameter : table.parameters) {
    const auto shape = parameter.whole_shape();
    if (shape.empty()) continue;
    if (shape.size() == 1 && is_weight(parameter.name)) norm_width = std::max(norm_width, shape[0]);
    if (shape.size() == 2) any_width = std::max(any_width, shape[1]);
  }
  return norm_width > 0 ? norm_width : any_width;
}

void solve_auto_sizes(const ParameterTable& table, config::Zero& zero) {
  const int64_t width = width_of(table);
  if (!zero.reduce_bucket_size) zero.reduce_bucket_size = width * width;
  if (!zero.prefetch_bucket_size) zero.prefetch_bucket_size = width * width * 9 / 10;
  if (!zero.param_persistence_threshold) zero.param_persistence_threshold = 10 * width;
}

}  // namespace dslaunch::runtime::engine::step
