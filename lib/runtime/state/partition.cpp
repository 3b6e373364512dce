#include "runtime/state/partition.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<FlatGroup> plan_flat_groups(const ParameterTable& table, const std::vector<at::ScalarType>& compute_dtypes,
                                        int num_shards, int64_t max_group_numel) {
  DSL_CHECK(num_shards >= 1 && max_group_numel >= 1, "a partition needs at least one shard and one element");
  std::vector<FlatGroup> groups;
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    const size_t first = groups.size();
    for (int index : table.units[unit].parameters) {
      const at::ScalarType dtype = compute_dtypes[index];
      auto open =
          std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(first), groups.end(),
                       [&](const auto& group) { return group.dtype == dtype && group.numel < max_group_numel; });
      if (open == groups.end()) {
        groups.push_back({static_cast<int>(unit), dtype, {}, 0, 0});
        open = groups.end() - 1;
      }
      const int64_t numel = table.parameters[index].numel;
      open->segments.push_back({index, open->numel, numel});
      open->numel += numel;
    }
  }
  for (auto& group : groups) group.padded_numel = round_up(group.numel, num_shards * kShardAlignment);
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
