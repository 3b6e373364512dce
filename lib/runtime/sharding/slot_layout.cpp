#include "runtime/sharding/slot_layout.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace dslaunch::runtime {
namespace {

constexpr int64_t kBufferAlignment = 512;  // bytes; as in the caching allocator

int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

std::vector<UnitLayout> lay_out_units(size_t num_units, const std::vector<FlatGroup>& groups) {
  std::vector<UnitLayout> units(num_units);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].is_gathered) continue;
    UnitLayout& unit = units[static_cast<size_t>(groups[i].unit)];
    unit.groups.push_back(static_cast<int>(i));
    unit.offsets.push_back(unit.num_bytes);
    unit.num_bytes += aligned(bytes_of(groups[i]));
    unit.numel += groups[i].padded_numel;
  }
  return units;
}

// Elements of a ring of so many slots for all of these units but the root.
int64_t ring_numel(std::span<const UnitLayout> units, int num_slots) {
  std::vector<int64_t> numel(static_cast<size_t>(num_slots));
  int next = 0;
  for (const UnitLayout& unit : units.subspan(1)) {
    if (unit.groups.empty()) continue;
    int64_t& slot = numel[static_cast<size_t>(next++ % num_slots)];
    slot = std::max(slot, unit.numel);
  }
  return std::accumulate(numel.begin(), numel.end(), int64_t{0});
}

// As many slots as the prefetch fills, plus one for the running unit and one for the unit that has just finished.
int choose_num_slots(const std::vector<UnitLayout>& units, const ShardingOptions& options) {
  int64_t largest = 1, num_units = 0;
  for (size_t i = 1; i < units.size(); ++i) {
    largest = std::max(largest, units[i].numel);
    num_units += units[i].groups.empty() ? 0 : 1;
  }
  const int64_t ahead = (options.prefetch_numel + largest - 1) / largest;
  auto num_slots = static_cast<int>(std::min<int64_t>(num_units, 2 + std::min<int64_t>(ahead, num_units)));
  while (num_slots > 1 && ring_numel(units, num_slots) > options.max_live_numel) --num_slots;
  return std::max(num_slots, 1);
}

// Units from this one on stay gathered between forward and backward. The units after one of them are gathered twice
// before it is used again: in forward and in backward.
size_t choose_first_kept(std::span<const UnitLayout> units, int num_slots, const ShardingOptions& options) {
  size_t first = units.size();
  if (options.for_evaluation) return first;
  int64_t kept = 0;  // elements
  while (first > 1 && 2 * kept < options.max_reuse_numel) {
    const int64_t with_this = kept + units[first - 1].numel;
    if (ring_numel(units.first(first - 1), num_slots) + with_this > options.max_live_numel) break;
    kept = with_this;
    --first;
  }
  return first;
}

}  // namespace

SlotLayout plan_slots(size_t num_units, const std::vector<FlatGroup>& groups, const ShardingOptions& options) {
  SlotLayout out;
  out.units = lay_out_units(num_units, groups);
  const int num_slots = choose_num_slots(out.units, options);
  const size_t first_kept = choose_first_kept(out.units, num_slots, options);
  int next = 0, num_kept = 0;
  for (size_t i = 1; i < out.units.size(); ++i) {
    UnitLayout& unit = out.units[i];
    if (unit.groups.empty()) continue;
    unit.slot = i < first_kept ? next++ % num_slots : num_slots + num_kept++;
    if (i >= first_kept) out.kept_numel += unit.numel;
  }
  const int root_slot = num_slots + num_kept;
  if (!out.units.empty()) out.units[0].slot = root_slot;
  out.slot_bytes.resize(static_cast<size_t>(root_slot) + 1);
  for (const UnitLayout& unit : out.units) {
    if (unit.groups.empty()) continue;
    int64_t& bytes = out.slot_bytes[static_cast<size_t>(unit.slot)];
    bytes = std::max(bytes, unit.num_bytes);
  }
  return out;
}

}  // namespace dslaunch::runtime
