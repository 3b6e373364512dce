#include "runtime/engine/plan/plan_rank.hpp"

#include <algorithm>

#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/step/sharding_choice.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/optimizer_groups.hpp"
#include "runtime/sharding/hierarchical_gather.hpp"
#include "runtime/sharding/slot_layout.hpp"
#include "runtime/sharding/state_layout.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using memory_plan::RankMemory;
using memory_plan::Tier;
using memory_plan::Use;

precision::ModelDtypes dtypes_of(const PlannedModel& model, const config::JobConfig& config, at::Device device) {
  std::vector<std::string> names;
  for (const auto& buffer : model.buffers) names.push_back(buffer.name);
  return {precision::choose_precision(config.precision, config.keep_batch_norm, device), names};
}

// Tensors that the model holds itself: buffers, and frozen parameters that are not sharded.
void add_held(const PlannedModel& model, const StateLayout& layout, const step::EngineOptions& options,
              RankMemory& memory) {
  const auto add = [&](const std::string& name, int64_t numel, at::ScalarType own) {
    const auto dtype = options.dtypes(name, own);
    const bool is_mapped = options.device.is_cpu() && dtype == own;
    memory.add(is_mapped ? Tier::kFile : Tier::kDevice, Use::kParameters,
               numel * static_cast<int64_t>(c10::elementSize(dtype)));
  };
  std::vector<bool> is_flat(model.table.parameters.size());
  for (const auto& group : layout.groups) {
    for (const auto& segment : group.segments) is_flat[static_cast<size_t>(segment.parameter)] = true;
  }
  for (size_t i = 0; i < is_flat.size(); ++i) {
    const auto& parameter = model.table.parameters[i];
    if (!is_flat[i]) add(parameter.name, parameter.numel, parameter.dtype);
  }
  for (const auto& buffer : model.buffers) add(buffer.name, buffer.numel, buffer.dtype);
}

// What decides where everything lies.
struct PlannedSharding {
  step::EngineOptions options;
  optim::OptimizerGroups optimizer_groups;
  int64_t num_moments = 0;
  ShardingOptions sharding;
  StateLayout layout;
};

PlannedSharding plan_sharding(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank) {
  PlannedSharding out;
  out.options = {
      .device = rank.device, .dtypes = dtypes_of(model, config, rank.device), .for_evaluation = rank.for_evaluation};
  out.optimizer_groups = optim::plan_optimizer_groups(config.optimizer, model.table);
  out.num_moments =
      step::count_offloaded_moments(model.table, config, out.optimizer_groups, out.options.for_evaluation);
  out.sharding = step::choose_sharding(model.table, config, out.options, rank.num_data_ranks, out.num_moments);
  out.sharding.optimizer_groups = out.optimizer_groups.of_parameter;
  out.layout = plan_state_layout(model.table, out.sharding, rank.num_data_ranks);
  return out;
}

// Features of the results that row-parallel GEMMs of the table leave to be added up.
int64_t reduced_width_of(const model::PlacementReport& report, const ParameterTable& table) {
  int64_t width = 0;
  for (const auto& parameter : table.parameters) {
    const auto gemm = std::find_if(report.gemms.begin(), report.gemms.end(),
                                   [&](const auto& each) { return each.parameter == parameter.name; });
    const bool is_row = gemm != report.gemms.end() && gemm->split == "row";
    if (is_row && parameter.slice && parameter.slice->length() > 0)
      width += parameter.numel / parameter.slice->length();
  }
  return width;
}

}  // namespace

int64_t PlannedModel::num_local() const {
  int64_t count = 0;
  for (const auto& parameter : table.parameters) count += parameter.numel;
  return count;
}

int64_t PlannedModel::num_local_trained() const {
  int64_t count = 0;
  for (const auto& parameter : table.parameters) count += parameter.trainable ? parameter.numel : 0;
  return count;
}

PlannedModel planned_model(const model::Model& model) {
  PlannedModel out{
      .table = model.facts.table, .buffers = {}, .fp8 = model.facts.fp8, .placements = model.facts.placements};
  if (out.placements) out.reduced_width = reduced_width_of(*out.placements, out.table);
  for (const auto& [name, value] : model.tensors.buffers()) {
    out.buffers.push_back({name, value.numel(), value.scalar_type()});
  }
  return out;
}

RankMemory plan_rank(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank) {
  const ParameterTable& table = model.table;
  const auto [options, optimizer_groups, num_moments, sharding, layout] = plan_sharding(model, config, rank);
  hpz_group(rank.rank, rank.num_data_ranks, config.zero.hpz_partition_size);  // throws for ranks that do not divide
  const auto optimizer = optim::make_flat_optimizer(
      optimizer_groups,
      {.table = &table, .groups = &layout.groups, .num_replicas = layout.num_shards > 1 ? 1 : rank.num_data_ranks});
  RankOfState of{.rank = rank.rank, .num_data_ranks = rank.num_data_ranks};
  of.secondary_ranks = config.zero.hpz_partition_size;
  of.moments_of = [&](int group) { return static_cast<int64_t>(optimizer->moment_names(group).size()); };
  RankMemory memory = count_state(layout, table.units.size(), sharding, of);
  std::vector<StateSpan> spans;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    if (layout.groups[i].is_frozen) continue;
    const Range own = shard_range(layout.groups[i], layout.num_shards > 1 ? rank.rank : 0, layout.num_shards);
    for (const auto& span : plan_spans(layout.groups[i], static_cast<int>(i), own, sharding.optimizer_groups)) {
      spans.push_back(span);
    }
  }
  memory.add(Tier::kDevice, Use::kMoments, optimizer->own_state_bytes(spans));
  add_held(model, layout, options, memory);
  const auto buffers = step::offload_buffers(config, num_moments, offloaded_spans(layout, sharding, rank.rank),
                                             stored_slices(layout, sharding, rank.rank), rank.device);
  memory.add(Tier::kHost, Use::kBuckets, buffers.host_bytes);
  memory.add(rank.device.is_cpu() ? Tier::kHost : Tier::kPageLocked, Use::kBuckets, buffers.page_locked_bytes);
  return memory;
}

double share_kept_gathered(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank) {
  if (config.zero.stage < 3) return 0;
  const PlannedSharding planned = plan_sharding(model, config, rank);
  const SlotLayout slots = plan_slots(model.table.units.size(), planned.layout.groups, planned.sharding);
  int64_t gathered = 0;
  for (const UnitLayout& unit : slots.units) gathered += unit.numel;
  return gathered == 0 ? 0 : static_cast<double>(slots.kept_numel) / static_cast<double>(gathered);
}

}  // namespace dslaunch::runtime::engine::plan
