// Stage 3: which groups a unit gathers, where they lie in its slot buffer, and how large the slots are. Pure; any
// thread.
//
// Most units share a ring of slots. The last ones, which backward needs soon after forward, have a slot each
// (ShardingOptions::max_reuse_numel), so that they are gathered once for both.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

struct UnitLayout {
  std::vector<int> groups;       // that are gathered
  std::vector<int64_t> offsets;  // in bytes, of its groups within its buffer
  int64_t num_bytes = 0, numel = 0;
  int slot = 0;
};

struct SlotLayout {
  std::vector<UnitLayout> units;    // by unit
  std::vector<int64_t> slot_bytes;  // by slot: the ring, those of single units, the root's
  int64_t kept_numel = 0;           // elements of the units that stay gathered from forward to backward
};

SlotLayout plan_slots(size_t num_units, const std::vector<FlatGroup>& groups, const ShardingOptions& options);

}  // namespace dslaunch::runtime
