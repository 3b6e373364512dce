#include "runtime/state/partition.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::vector<int> in_order_of_optimizer_groups(std::vector<int> parameters, const std::vector<int>& optimizer_groups) {
  if (optimizer_groups.empty()) return parameters;
  std::stable_sort(parameters.begin(), parameters.end(),
                   [&](int a, int b) { return optimizer_groups[a] < optimizer_groups[b]; });
  return parameters;
}

// Decides, parameter by parameter in the order of the units, which ones are gathered only while their unit runs.
class Residence {
 public:
  explicit Residence(const PartitionOptions& options) : options_(options) {}

  bool is_gathered(int64_t numel) {
    if (!options_.gathers) return false;
    const bool is_small = numel <= options_.persistence_threshold;
    if (is_small && numel <= options_.model_persistence_threshold - persistent_numel_) {
      persistent_numel_ += numel;
      return false;
    }
    return true;
  }

 private:
  const PartitionOptions& options_;
  int64_t persistent_numel_ = 0;
};

// The groups of one unit's parameters, appended as the parameters arrive.
class UnitGroups {
 public:
  UnitGroups(int unit, const PartitionOptions& options, std::vector<FlatGroup>& out)
      : unit_(unit), options_(options), out_(out), first_(out.size()) {}

  void add(int parameter, int64_t numel, bool is_gathered, bool is_frozen) {
    const at::ScalarType dtype = options_.compute_dtypes[parameter];
    auto open = std::find_if(out_.begin() + static_cast<std::ptrdiff_t>(first_), out_.end(), [&](const auto& group) {
      return group.dtype == dtype && group.is_gathered == is_gathered && group.numel < options_.max_group_numel;
    });
    if (open == out_.end()) {
      out_.push_back({unit_, dtype, is_gathered, {}, 0, 0, is_frozen});
      open = out_.end() - 1;
    }
    open->segments.push_back({parameter, open->numel, numel});
    open->numel += numel;
  }

 private:
  const int unit_;
  const PartitionOptions& options_;
  std::vector<FlatGroup>& out_;
  const size_t first_;
};

}  // namespace

int64_t bytes_of(const FlatGroup& group) {
  return group.padded_numel * static_cast<int64_t>(c10::elementSize(group.dtype));
}

std::vector<FlatGroup> plan_flat_groups(const ParameterTable& table, const PartitionOptions& options) {
  DSL_CHECK(options.num_shards >= 1 && options.max_group_numel >= 1,
            "a partition needs at least one shard and one element");
  Residence residence(options);
  std::vector<FlatGroup> groups, frozen_groups;
  for (size_t i = 0; i < table.units.size(); ++i) {
    const auto& unit = table.units[i];
    UnitGroups trained(static_cast<int>(i), options, groups), frozen(static_cast<int>(i), options, frozen_groups);
    for (int index : in_order_of_optimizer_groups(unit.parameters, options.optimizer_groups)) {
      const int64_t numel = table.parameters[index].numel;
      trained.add(index, numel, residence.is_gathered(numel), /*is_frozen=*/false);
    }
    for (int index : unit.frozen) {
      const int64_t numel = table.parameters[index].numel;
      if (residence.is_gathered(numel)) frozen.add(index, numel, /*is_gathered=*/true, /*is_frozen=*/true);
    }
  }
  groups.insert(groups.end(), frozen_groups.begin(), frozen_groups.end());
  for (auto& group : groups) group.padded_numel = round_up(group.numel, options.num_shards * kShardAlignment);
  return groups;
}

Range shard_range(const FlatGroup& group, int index, int count) {
  DSL_CHECK(group.padded_numel % count == 0, "a flat buffer must split evenly");
  const int64_t size = group.padded_numel / count;
  return {index * size, (index + 1) * size};
}

std::vector<Piece> pieces_in(const FlatGroup& group, Range range) {
  std::vector<Piece> pieces;
  for (const auto& segment : group.segments) {
    const int64_t begin = std::max(range.begin, segment.offset);
    const int64_t end = std::min(range.end, segment.offset + segment.numel);
    if (begin < end) pieces.push_back({segment.parameter, begin - segment.offset, end - begin, begin - range.begin});
  }
  return pieces;
}

}  // namespace dslaunch::runtime
