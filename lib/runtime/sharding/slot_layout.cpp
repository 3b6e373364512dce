#include "runtime/sharding/slot_layout.hpp"

#include <algorithm>

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

int64_t slots_numel(const std::vector<UnitLayout>& units, int num_slots) {
  std::vector<int64_t> numel(static_cast<size_t>(num_slots));
  int next = 0;
  for (size_t i = 1; i < units.size(); ++i) {
    if (units[i].groups.empty()) continue;
    int64_t& slot = numel[static_cast<size_t>(next++ % num_slots)];
    slot = std::max(slot, units[i].numel);
  }
  int64_t sum = 0;
  for (int64_t slot : numel) sum += slot;
  return sum;
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
  while (num_slots > 1 && slots_numel(units, num_slots) > options.max_live_numel) --num_slots;
  return std::max(num_slots, 1);
}

}  // namespace

SlotLayout plan_slots(size_t num_units, const std::vector<FlatGroup>& groups, const ShardingOptions& options) {
  SlotLayout out;
  out.units = lay_out_units(num_units, groups);
  const int num_slots = choose_num_slots(out.units, options);
  out.slot_bytes.resize(static_cast<size_t>(num_slots) + 1);
  int next = 0;
  for (size_t i = 0; i < out.units.size(); ++i) {
    UnitLayout& unit = out.units[i];
    if (unit.groups.empty()) continue;
    unit.slot = i == 0 ? num_slots : next++ % num_slots;
    int64_t& bytes = out.slot_bytes[static_cast<size_t>(unit.slot)];
    bytes = std::max(bytes, unit.num_bytes);
  }
  return out;
}

}  // namespace dslaunch::runtime
