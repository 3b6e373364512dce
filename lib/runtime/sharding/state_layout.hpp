// How the parameters and the optimizer state of a rank lie in flat buffers and in tiers of memory, and how many bytes
// each takes: what FlatParameters allocates, as values. `dslaunch plan` reads it for ranks that do not exist. Pure; any
// thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/memory_plan/rank_memory.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

struct StateLayout {
  std::vector<FlatGroup> groups;  // trained ones, then frozen ones
  size_t num_trained = 0;         // groups
  int num_shards = 1;
  std::vector<bool> is_offloaded;  // by group: its optimizer state rests on the host
  std::vector<bool> is_stored;     // by group: its parameters rest in a file

  std::span<const FlatGroup> trained() const { return {groups.data(), num_trained}; }
};

StateLayout plan_state_layout(const ParameterTable& table, const ShardingOptions& options, int num_data_ranks);

// Elements of the spans of a rank whose state is offloaded, in their order.
std::vector<int64_t> offloaded_spans(const StateLayout& layout, const ShardingOptions& options, int rank);
// What of the groups is stored on a rank, in their order.
std::vector<StoredSlice> stored_slices(const StateLayout& layout, const ShardingOptions& options, int rank);

// In which reductions carry the gradients of a group.
at::ScalarType wire_dtype(const FlatGroup& group, const ShardingOptions& options);
// Stages 0 and 1, a step of one micro batch: in which the gradients of a unit's only call wait for their reduction.
// Theirs, if it is what goes over the wire: a sum in `accumulation_dtype` would be rounded to it, if not before.
at::ScalarType bucket_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks);
// Stages 0 and 1: the same, and where micro batches are added up in their buffers.
at::ScalarType own_sum_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks);
// Stages 0 and 1: whether a buffer of type `sum` holds what is reduced from it, unrounded.
bool holds_reduced(at::ScalarType sum, const FlatGroup& group, const ShardingOptions& options, int num_data_ranks);
// What a rank keeps of its slice of a group's gradients until the update: the dtype of the slices that reductions
// deliver, unless several of them are added up.
at::ScalarType gradient_dtype(const FlatGroup& group, const ShardingOptions& options, int num_data_ranks);
// Of reductions that follow backward: one bucket is filled while the other is reduced.
inline constexpr int64_t kNumGradientBuckets = 2;
// Stages 2 and 3: the size of each.
int64_t bucket_bytes(std::span<const FlatGroup> trained, const ShardingOptions& options);
// What ShardingOptions::Offload::reserve is called with.
int64_t offloaded_bytes(const StateLayout& layout, const ShardingOptions& options, int num_data_ranks, int rank);

struct RankOfState {
  int rank = 0, num_data_ranks = 1;
  int64_t secondary_ranks = 1;                               // zero_hpz_partition_size
  std::function<int64_t(int optimizer_group)> moments_of{};  // of an element
};
// All that the rank allocates for the state of sharded parameters, and for one step beside its activations. Memory of a
// step is counted at its most; what operators need for a moment is not.
memory_plan::RankMemory count_state(const StateLayout& layout, size_t num_units, const ShardingOptions& options,
                                    const RankOfState& of);

}  // namespace dslaunch::runtime
