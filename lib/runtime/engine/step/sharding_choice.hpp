// Chooses from config and model how parameters, gradients and their communication are laid out. Pure.
#pragma once
#include <cstdint>
#include <span>

#include "config/job_config.hpp"
#include "runtime/offload/parameter_file.hpp"
#include "runtime/offload/state_file.hpp"
#include "runtime/optim/optimizer_groups.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::engine::step {

struct EngineOptions;

// `num_moments`: of an element, where state is offloaded. The config must outlive the result. Throws UserError(65) for
// a trainable float64 parameter.
ShardingOptions choose_sharding(const ParameterTable& table, const config::JobConfig& config,
                                const EngineOptions& options, int data_ranks, int64_t num_moments);

// The last argument of choose_sharding().
int64_t count_offloaded_moments(const ParameterTable& table, const config::JobConfig& config,
                                const optim::OptimizerGroups& groups, bool for_evaluation);
// The most elements that an update of offloaded spans, given by their elements, works on at once, where their state is
// in memory. Where it writes parameters to files, they are those of whole pages.
int64_t host_update_numel(const config::Zero& zero, std::span<const int64_t> spans);

// Whether copies between the device and such host memory go through page-locked blocks (offload/staged_copies.hpp).
bool is_staged(memory_plan::Tier tier, at::Device device);

// The blocks through which updates of offloaded spans, parameters in files and copies that are staged go.
// `page_locked_bytes`: on a GPU.
struct OffloadBuffers {
  int64_t host_bytes = 0, page_locked_bytes = 0;
};
OffloadBuffers offload_buffers(const config::JobConfig& config, int64_t num_moments, std::span<const int64_t> spans,
                               std::span<const StoredSlice> stored, at::Device device);

// Whether offloaded optimizer state rests in files, and how.
bool offloads_to_files(const config::JobConfig& config);
offload::StateFileOptions state_file_options(const config::JobConfig& config, int64_t num_moments);
// The same for parameters.
offload::ParameterFileOptions parameter_file_options(const config::JobConfig& config);

// The model's width h: the largest last dimension of its normalisation weights, else of its linear layers.
int64_t width_of(const ParameterTable& table);
// Computes the sizes that the config leaves to the width: reduce bucket h*h, prefetch bucket 0.9*h*h, persistence
// threshold 10*h.
void solve_auto_sizes(const ParameterTable& table, config::Zero& zero);

}  // namespace dslaunch::runtime::engine::step
