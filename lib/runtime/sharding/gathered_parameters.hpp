// Stage 3 parameters: each rank keeps its slices; parameters are whole only while a unit runs, in a ring of slots, or
// between forward and backward, in a slot of the unit's own (slot_layout.hpp).
//
// A unit always uses the same slot, in forward and in backward, so a tensor that autograd saved from a parameter (a
// view, a transpose) is valid again once the unit is gathered again. The root's parameters have their own slot, since
// the root runs around all other units. When a slot's unit is still running and another unit needs the slot, the second
// unit gets a private buffer for the rest of the pass.
//
// Whether a unit has to be gathered is decided from the order of events alone, never from what this rank currently
// holds, so that all ranks decide alike. With hpZ the first gather after a step is over all ranks; each rank keeps a
// secondary part of it, and later gathers use these parts within the host. Gathers overlap computation, and the next
// units are gathered ahead of use. One thread at a time: the model's or autograd's.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/parameter_store.hpp"
#include "runtime/sharding/pending_updates.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/sharding/slot_layout.hpp"
#include "runtime/sharding/unit_order.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime {

class GatheredParameters {
 public:
  // This rank's slices of the parameters (of frozen groups see FrozenShard), on the device, on the host or, where a
  // group's tensor is undefined, in `store`.
  struct AtRest {
    std::vector<at::Tensor> slices;  // by group
    std::shared_ptr<ParameterStore> store = {};
    std::vector<StoredSlice> stored = {};  // that are in the store
  };
  // `at_rest` is read at every gather. All other arguments must outlive this object. Groups that are not gathered are
  // ignored.
  GatheredParameters(const ParameterTable& table, const std::vector<FlatGroup>& groups, AtRest at_rest,
                     const ShardingOptions& options, StepStreams& streams, comm::Communicator& group);

  // The updates of these groups are waited for before a slice is read; the gather begins after their mark.
  void wait_for(PendingUpdates& updates, std::vector<bool> is_updated) {
    updates_ = &updates;
    is_updated_ = std::move(is_updated);
  }
  bool has(int unit) const { return !units_[unit].groups.empty(); }
  // Issues the gather that this event needs, if any, and those of upcoming units in `ahead`.
  void unshard(int unit, std::span<const UnitEvent> ahead);
  // After unshard(): keeps the unit in place until release(). A call that expects a backward keeps its place, too.
  void hold(int unit);
  void release(int unit);
  void expect_backward(int unit) { units_[unit].open_calls += 1; }
  void backward_done(int unit);
  // The current stream waits for the unit's last gather, also one that no call has waited for.
  void wait_for_gather(int unit) const { streams_.wait(units_[unit].ready); }
  // The whole parameters of one group, flat; its unit must be held.
  at::Tensor full_parameters(int group) const;
  // The address of a held unit; null for a unit without gathered groups.
  const void* address(int unit) const {
    return units_[unit].buffer ? units_[unit].buffer->bytes.const_data_ptr() : nullptr;
  }

  // Between passes: nothing is held any longer, nothing counts as gathered. `next`: the events of the next pass, if it
  // will find the shards as they are.
  void end_pass(std::span<const UnitEvent> next = {});
  // The shards have been written on the current stream, or updates of them have begun: later gathers wait for that.
  // `next`: the events of the next pass.
  void shards_changed(std::span<const UnitEvent> next = {});
  // The next gathers are over all ranks, whatever this host has already.
  void forget_secondary();
  int num_slots() const { return static_cast<int>(unit_in_slot_.size()) - 1; }

 private:
  struct SlotBuffer {  // memory for one unit's groups
    at::Tensor bytes;
    int unit = -1;        // the last unit that was gathered into it
    StreamMark last_use;  // by computation
  };
  struct Unit : UnitLayout {
    explicit Unit(UnitLayout layout) : UnitLayout(std::move(layout)) {}
    std::shared_ptr<SlotBuffer> buffer;  // current or last location; null: not gathered in this pass
    int pins = 0;                        // hold() without release()
    int open_calls = 0;                  // calls whose backward is still to come
    StreamMark ready;                    // the end of its last gather
    std::vector<at::Tensor> secondary;   // hpZ: by group, this rank's secondary part within its host
    bool secondary_is_current = false;
  };

  void prefetch(int unit, std::span<const UnitEvent> ahead);
  void read_ahead(std::span<const UnitEvent> ahead);
  std::vector<int> next_reads(std::span<const UnitEvent> ahead) const;
  void gather(int unit);
  void gather_from_all(const Unit& unit);
  void gather_from_host(Unit& unit);
  at::Tensor at_rest_on_device(int group) const;
  void store_secondary(Unit& unit);
  std::shared_ptr<SlotBuffer> buffer_for(int unit);
  bool is_used_by_other_unit(const SlotBuffer& buffer, int unit) const;

  // fixed after construction
  const ParameterTable& table_;
  const std::vector<FlatGroup>& groups_;
  const AtRest at_rest_;
  std::vector<const StoredSlice*> stored_;  // by group; null: it is not in the store
  const ShardingOptions& options_;
  StepStreams& streams_;
  comm::Communicator& group_;
  std::shared_ptr<MemoryTransfers> copies_;  // of slices in host memory; null: the copy engine reads them itself
  PendingUpdates* updates_ = nullptr;
  std::vector<bool> is_updated_;  // by group
  // the thread at work
  std::vector<Unit> units_;
  std::vector<std::shared_ptr<SlotBuffer>> slots_;  // the last one is the root's
  std::vector<int> unit_in_slot_;                   // by slot: the unit that the order of events put there, or -1
  int last_slot_ = -1;  // of the last unit other than the root that was reached in this pass
  StreamMark changed_;  // void: before anything that the current stream does now
};

}  // namespace dslaunch::runtime
