#include "runtime/sharding/state_layout.hpp"

#include <algorithm>

#include "runtime/sharding/quantized_codec.hpp"
#include "runtime/sharding/slot_layout.hpp"
#include "runtime/state/state_span.hpp"

namespace dslaunch::runtime {
namespace {

using memory_plan::RankMemory;
using memory_plan::Tier;
using memory_plan::Use;

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

PartitionOptions partition_options(const ShardingOptions& options, int num_shards) {
  PartitionOptions out;
  out.compute_dtypes = options.compute_dtypes;
  out.num_shards = num_shards;
  out.max_group_numel = options.max_group_numel;
  out.optimizer_groups = options.optimizer_groups;
  // A single rank holds everything anyway, unless it is on the host.
  out.gathers = options.stage == 3 && (num_shards > 1 || options.offload.parameters);
  out.persistence_threshold = options.persistence_threshold;
  out.model_persistence_threshold = options.model_persistence_threshold;
  return out;
}

// The last used groups: the updates of the first ones, which the next forward needs first, need not leave the device.
std::vector<bool> choose_offloaded(const std::vector<FlatGroup>& groups, double share) {
  std::vector<bool> out(groups.size());
  int64_t left = 0;
  for (const auto& group : groups) left += group.is_frozen ? 0 : group.padded_numel;
  const double wanted = share * static_cast<double>(left);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].is_frozen) continue;
    out[i] = wanted > 0 && static_cast<double>(left) <= std::max(wanted, 1.0);
    left -= groups[i].padded_numel;
  }
  return out;
}

// The first groups that fit stay in memory: the last ones are still in their slots when backward begins.
std::vector<bool> choose_stored(const std::vector<FlatGroup>& groups, const ShardingOptions& options, int num_shards) {
  std::vector<bool> out(groups.size());
  if (!options.offload.parameters_in_files) return out;
  int64_t left = options.offload.max_numel_in_memory;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].is_gathered) continue;
    const int64_t own = groups[i].padded_numel / num_shards;
    out[i] = own > left;
    if (!out[i]) left -= own;
  }
  return out;
}

bool is_encoded(const FlatGroup& group, const ShardingOptions& options) {
  return group.is_frozen && options.quantized_frozen;
}

// Adds up what FlatParameters, GatheredParameters, reductions and sinks allocate.
class Count {
 public:
  Count(const StateLayout& layout, const ShardingOptions& options, const RankOfState& of)
      : layout_(layout), options_(options), of_(of) {}

  RankMemory run(size_t num_units) {
    for (size_t i = 0; i < layout_.groups.size(); ++i) {
      add_parameters(i);
      if (layout_.groups[i].is_frozen || options_.for_evaluation) continue;
      add_state(i);
      add_gradients(i);
    }
    add_slots(num_units);
    add_buckets(num_units);
    return memory_;
  }

 private:
  Tier tier_of(HostUse use) const { return options_.offload.tiers[static_cast<size_t>(use)]; }
  Range own_range(size_t index) const {
    const int rank = layout_.num_shards > 1 ? of_.rank : 0;
    return shard_range(layout_.groups[index], rank, layout_.num_shards);
  }
  // Stages 0 and 1: a rank adds up its own gradients whole, until the update.
  bool keeps_sums() const { return options_.stage == 0 || (options_.stage == 1 && options_.accumulates); }
  bool is_on_host(const FlatGroup& group) const { return group.is_gathered && options_.offload.parameters; }

  void add_parameters(size_t index) {
    const FlatGroup& group = layout_.groups[index];
    if (!group.is_gathered) return memory_.add(Tier::kDevice, Use::kParameters, bytes_of(group));
    const int64_t own = own_range(index).size();
    const int64_t bytes = is_encoded(group, options_) ? wire_bytes(own, kWeightWire) : own * size_of(group.dtype);
    const Tier on_host = layout_.is_stored[index] ? Tier::kFile : tier_of(HostUse::kParameter);
    memory_.add(is_on_host(group) ? on_host : Tier::kDevice, Use::kParameters, bytes);
  }

  void add_state(size_t index) {
    const FlatGroup& group = layout_.groups[index];
    const Range own = own_range(index);
    const bool is_offloaded = layout_.is_offloaded[index];
    const Tier tier = is_offloaded ? tier_of(HostUse::kState) : Tier::kDevice;
    // An fp32 parameter on the device is its own master.
    const bool is_elsewhere = layout_.is_stored[index] || (is_on_host(group) && !options_.device.is_cpu());
    const bool has_copy = is_offloaded || group.dtype != at::kFloat || is_elsewhere;
    if (has_copy) memory_.add(tier, Use::kMasters, own.size() * size_of(at::kFloat));
    // Masters of the device are rounded to a copy there, which goes to the host; to files they go span by span.
    const bool is_rounded_to_copy = is_elsewhere && !layout_.is_stored[index] && !is_offloaded;
    if (is_rounded_to_copy && group.dtype != at::kFloat)
      memory_.add(Tier::kDevice, Use::kUpdateCopies, own.size() * size_of(group.dtype));
    for (const auto& span : plan_spans(group, static_cast<int>(index), own, options_.optimizer_groups)) {
      const int64_t moments = of_.moments_of ? of_.moments_of(span.optimizer_group) : 0;
      memory_.add(tier, Use::kMoments, moments * span.numel() * size_of(at::kFloat));
    }
  }

  void add_gradients(size_t index) {
    const FlatGroup& group = layout_.groups[index];
    const int64_t own = own_range(index).size();
    const bool is_offloaded = layout_.is_offloaded[index];
    const int64_t bytes = own * size_of(gradient_dtype(group, options_, of_.num_data_ranks));
    const auto sum = own_sum_dtype(group, options_, of_.num_data_ranks);
    if (keeps_sums()) memory_.add(Tier::kDevice, Use::kGradients, group.padded_numel * size_of(sum));
    const bool is_in_sums = keeps_sums() && holds_reduced(sum, group, options_, of_.num_data_ranks);
    if (!is_offloaded && !is_in_sums) memory_.add(Tier::kDevice, Use::kGradients, bytes);
    if (!is_offloaded) return;
    memory_.add(tier_of(HostUse::kGradient), Use::kGradients, bytes * (options_.offload.keeps_gradients ? 2 : 1));
    // A delayed update stages parameters twice, those of state in files once, there.
    if (options_.offload.keeps_gradients && tier_of(HostUse::kState) == Tier::kFile) {
      memory_.add(Tier::kFile, Use::kBuckets, own * size_of(at::kFloat));
    } else if (options_.offload.keeps_gradients) {
      const Tier staging = options_.device.is_cpu() ? Tier::kHost : Tier::kPageLocked;
      memory_.add(staging, Use::kBuckets, 2 * own * size_of(group.dtype));
    }
  }

  void add_slots(size_t num_units) {
    for (int64_t bytes : plan_slots(num_units, layout_.groups, options_).slot_bytes) {
      memory_.add(Tier::kDevice, Use::kSlots, bytes);
    }
    if (of_.secondary_ranks <= 1 || of_.secondary_ranks >= of_.num_data_ranks) return;
    for (const auto& group : layout_.groups) {
      if (group.is_gathered) memory_.add(Tier::kDevice, Use::kSlots, bytes_of(group) / of_.secondary_ranks);
    }
  }

  void add_buckets(size_t num_units) {
    if (options_.stage >= 2) {
      memory_.add(Tier::kDevice, Use::kBuckets, kNumGradientBuckets * bucket_bytes(layout_.trained(), options_));
    }
    if (options_.for_evaluation) return;
    int64_t largest_wire = 0;
    for (size_t i = 0; i < layout_.num_trained; ++i) {
      const FlatGroup& group = layout_.groups[i];
      const auto wire = wire_dtype(group, options_);
      const auto sum = own_sum_dtype(group, options_, of_.num_data_ranks);
      const bool converts = options_.stage < 2 && of_.num_data_ranks > 1 && wire != sum;
      if (converts) largest_wire = std::max(largest_wire, group.padded_numel * size_of(wire));
      if (options_.loco) memory_.add(Tier::kDevice, Use::kBuckets, group.padded_numel * size_of(at::kFloat));
    }
    memory_.add(Tier::kDevice, Use::kBackwardBuckets, dropped_bucket_bytes(num_units) + largest_wire);
  }

  // The most that buffers which are dropped when they are reduced take at a time: those of a unit, whose backward
  // writes to all of them, and the one before them in the order of reductions, which may still be under way. Those of
  // a root with units come one by one.
  int64_t dropped_bucket_bytes(size_t num_units) const {
    int64_t most = 0, before = 0;
    for (size_t end = layout_.num_trained; end > 0;) {
      const int unit = layout_.groups[end - 1].unit;
      const bool is_written_to = unit != 0 || num_units == 1;
      const int64_t last = dropped_bytes(end - 1);
      int64_t together = 0;
      do {
        together += dropped_bytes(--end);
      } while (is_written_to && end > 0 && layout_.groups[end - 1].unit == unit);
      most = std::max(most, before + together);
      before = last;
    }
    return most;
  }
  int64_t dropped_bytes(size_t index) const {
    const FlatGroup& group = layout_.groups[index];
    const auto dtype = bucket_dtype(group, options_, of_.num_data_ranks);
    return drops_reduced(index) ? group.padded_numel * size_of(dtype) : 0;
  }

  // A single rank's own slice is all of the bucket and stays in it.
  bool drops_reduced(size_t index) const {
    if (options_.stage != 1 || keeps_sums()) return false;
    return of_.num_data_ranks > 1 || layout_.is_offloaded[index];
  }

  const StateLayout& layout_;
  const ShardingOptions& options_;
  const RankOfState& of_;
  RankMemory memory_;
};

}  // namespace

StateLayout plan_state_layout(const ParameterTable& table, const ShardingOptions& options, int num_data_ranks) {
  StateLayout out;
  out.num_shards = options.stage >= 1 ? num_data_ranks : 1;
  out.groups = plan_flat_groups(table, partition_options(options, out.num_shards));
  for (const auto& group : out.groups) out.num_trained += group.is_frozen ? 0 : 1;
  out.is_offloaded = choose_offloaded(out.groups, options.offload.optimizer_share);
  out.is_stored = choose_stored(out.groups, options, out.num_shards);
  return out;
}

std::vector<int64_t> offloaded_spans(const StateLayout& layout, const ShardingOptions& options, int rank) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    if (!layout.is_offloaded[i]) continue;
    const Range own = shard_range(layout.groups[i], layout.num_shards > 1 ? rank : 0, layout.num_shards);
    for (const auto& span : plan_spans(layout.groups[i], static_cast<int>(i), own, options.optimizer_groups)) {
      out.push_back(span.numel());
    }
  }
  return out;
}

std::vector<StoredSlice> stored_slices(const StateLayout& layout, const ShardingOptions& options, int rank) {
  std::vector<StoredSlice> out;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    if (!layout.is_stored[i]) continue;
    const FlatGroup& group = layout.groups[i];
    const auto index = static_cast<int>(i);
    const Range own = shard_range(group, layout.num_shards > 1 ? rank : 0, layout.num_shards);
    StoredSlice& slice = out.emplace_back(StoredSlice{index, group.dtype, {}});
    if (is_encoded(group, options)) {
      slice.dtype = at::kByte;
      slice.spans = {wire_bytes(own.size(), kWeightWire)};
    } else if (group.is_frozen) {
      slice.spans = {own.size()};
    } else {
      for (const auto& span : plan_spans(group, index, own, options.optimizer_groups)) {
        slice.spans.push_back(span.numel());
      }
    }
  }
  return out;
}

at::ScalarType wire_dtype(const FlatGroup& group, const ShardingOptions& options) {
  return options.communication_dtype.value_or(group.dtype);
}

// With several ranks, a division before the sum is computed in fp32 and rounded to the wire's type either way.
at::ScalarType bucket_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks) {
  const auto wire = wire_dtype(group, options), sum = options.accumulation_dtype;
  const bool holds_gradients = wire == group.dtype && (sum == at::kFloat || sum == wire);
  return holds_gradients && (num_data_ranks > 1 || options.predivide == 1.0) ? wire : sum;
}

at::ScalarType own_sum_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks) {
  return options.accumulates ? options.accumulation_dtype : bucket_dtype(group, options, num_data_ranks);
}

bool holds_reduced(at::ScalarType sum, const FlatGroup& group, const ShardingOptions& options, int num_data_ranks) {
  return num_data_ranks == 1 || sum == at::kFloat || sum == wire_dtype(group, options);
}

at::ScalarType gradient_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks) {
  const bool is_one_rank = num_data_ranks == 1;
  const auto wire = wire_dtype(group, options);
  if (options.stage < 2 && !is_one_rank) return wire;
  if (options.stage < 2) return own_sum_dtype(group, options, num_data_ranks);
  if (options.accumulates || options.accumulation_dtype != at::kFloat) return options.accumulation_dtype;
  return options.quantized_gradients && !is_one_rank ? at::kFloat : wire;
}

int64_t bucket_bytes(std::span<const FlatGroup> trained, const ShardingOptions& options) {
  int64_t largest = 0;
  for (const auto& group : trained) {
    largest = std::max(largest, group.padded_numel * size_of(wire_dtype(group, options)));
  }
  return largest;
}

int64_t offloaded_bytes(const StateLayout& layout, const ShardingOptions& options, int num_data_ranks, int rank) {
  int64_t bytes = 0;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const FlatGroup& group = layout.groups[i];
    int64_t per_element = 0;
    if (layout.is_offloaded[i]) {
      per_element += options.offload.state_bytes;
      const int64_t gradient = size_of(gradient_dtype(group, options, num_data_ranks));
      const bool is_in_memory = options.offload.tiers[static_cast<size_t>(HostUse::kGradient)] != Tier::kFile;
      if (is_in_memory) per_element += options.offload.keeps_gradients ? 2 * gradient : gradient;
      // A delayed update stages parameters twice.
      const bool stages_in_memory = options.offload.tiers[static_cast<size_t>(HostUse::kState)] != Tier::kFile;
      if (options.offload.keeps_gradients && stages_in_memory) per_element += 2 * size_of(group.dtype);
    }
    const bool is_in_memory = group.is_gathered && options.offload.parameters && !layout.is_stored[i];
    if (is_in_memory) per_element += size_of(group.dtype);
    bytes += group.padded_numel / layout.num_shards * per_element;
  }
  if (!options.offload.buffer_bytes) return bytes;
  return bytes +
         options.offload.buffer_bytes(offloaded_spans(layout, options, rank), stored_slices(layout, options, rank));
}

RankMemory count_state(const StateLayout& layout, size_t num_units, const ShardingOptions& options,
                       const RankOfState& of) {
  return Count(layout, options, of).run(num_units);
}

}  // namespace dslaunch::runtime
