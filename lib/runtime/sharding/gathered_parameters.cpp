#include "runtime/sharding/gathered_parameters.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/sharding/quantized_collectives.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime {

GatheredParameters::GatheredParameters(const ParameterTable& table, const std::vector<FlatGroup>& groups,
                                       AtRest at_rest, const ShardingOptions& options, StepStreams& streams,
                                       comm::Communicator& group)
    : table_(table),
      groups_(groups),
      at_rest_(std::move(at_rest)),
      stored_(groups.size()),
      options_(options),
      streams_(streams),
      group_(group) {
  SlotLayout layout = plan_slots(table_.units.size(), groups_, options_);
  for (auto& unit : layout.units) units_.emplace_back(std::move(unit));
  for (int64_t bytes : layout.slot_bytes) {
    const auto on_device = at::TensorOptions().device(options_.device).dtype(at::kByte);
    slots_.push_back(std::make_shared<SlotBuffer>(SlotBuffer{at::empty({bytes}, on_device), -1, {}}));
  }
  unit_in_slot_.assign(slots_.size(), -1);
  for (const auto& slice : at_rest_.stored) stored_[slice.group] = &slice;
  const auto& slices = at_rest_.slices;
  const bool any_is_on_host = std::any_of(slices.begin(), slices.end(),
                                          [](const at::Tensor& slice) { return slice.defined() && slice.is_cpu(); });
  if (any_is_on_host && options_.offload.copies) copies_ = options_.offload.copies(HostUse::kParameter);
}

void GatheredParameters::unshard(int unit, std::span<const UnitEvent> ahead) {
  if (has(unit) && unit_in_slot_[units_[unit].slot] != unit) gather(unit);
  if (unit != 0) last_slot_ = units_[unit].slot;
  prefetch(unit, ahead);
  read_ahead(ahead);
}

// Gathers the next units in order, up to the first one that needs the slot of a unit before it. When the event is the
// root's, the previous unit may still be running: backward enters both at once when the root returns that unit's
// output.
void GatheredParameters::prefetch(int unit, std::span<const UnitEvent> ahead) {
  int64_t budget = options_.prefetch_numel;
  std::set<int> used_slots{last_slot_};
  if (has(unit)) used_slots.insert(units_[unit].slot);
  for (const UnitEvent& event : ahead) {
    if (event.kind == UnitEvent::Kind::kReduce || !has(event.unit)) continue;
    const Unit& next = units_[event.unit];
    const bool is_current = unit_in_slot_[next.slot] == event.unit;
    if (is_current && used_slots.insert(next.slot).second) continue;
    if (is_current) continue;
    if (budget <= 0 || !used_slots.insert(next.slot).second) return;
    budget -= next.numel;
    gather(event.unit);
  }
}

// Where nothing is known to follow, as in a pass that is being recorded, what was begun may still be right.
void GatheredParameters::read_ahead(std::span<const UnitEvent> ahead) {
  if (at_rest_.store && !ahead.empty()) at_rest_.store->read_ahead(next_reads(ahead));
}

// Which groups the next gathers read from the store: those of units that are not in their slots by then. The store
// waits with those that an update has yet to write.
std::vector<int> GatheredParameters::next_reads(std::span<const UnitEvent> ahead) const {
  std::vector<int> out, unit_in_slot = unit_in_slot_;
  std::set<int> gathered;
  for (const UnitEvent& event : ahead) {
    if (event.kind == UnitEvent::Kind::kReduce || !has(event.unit)) continue;
    const Unit& unit = units_[event.unit];
    if (std::exchange(unit_in_slot[unit.slot], event.unit) == event.unit) continue;
    const bool is_again = !gathered.insert(event.unit).second;
    if (unit.secondary_is_current || (is_again && options_.secondary_group != nullptr)) continue;
    for (int group : unit.groups) {
      if (stored_[group] == nullptr) continue;
      if (out.size() == at_rest_.store->max_ahead()) return out;
      out.push_back(group);
    }
  }
  return out;
}

void GatheredParameters::gather(int index) {
  Unit& unit = units_[index];
  auto buffer = buffer_for(index);
  // This frees a private buffer, whose memory the next computation may reuse. First wait until the side stream has
  // finished a gather into the buffer that no one has waited for.
  if (unit.buffer && unit.buffer != buffer && unit.buffer != slots_[unit.slot]) {
    streams_.wait(unit.ready);
  }
  unit.buffer = std::move(buffer);
  unit_in_slot_[unit.slot] = index;
  unit.buffer->unit = index;
  if (!streams_.is_pending(changed_)) changed_ = streams_.mark();
  streams_.wait(SideStream::kUnshard, changed_);
  streams_.wait(SideStream::kUnshard, unit.buffer->last_use);
  for (int group : unit.groups) {
    if (updates_ != nullptr && is_updated_[group]) streams_.wait(SideStream::kUnshard, updates_->wait(group));
  }
  unit.ready = streams_.run(SideStream::kUnshard, [&] {
    if (unit.secondary_is_current) {
      gather_from_host(unit);
    } else {
      gather_from_all(unit);
      if (options_.secondary_group != nullptr) store_secondary(unit);
    }
  });
}

void GatheredParameters::gather_from_all(const Unit& unit) {
  for (int group : unit.groups) {
    if (groups_[group].is_frozen && options_.quantized_frozen) {
      all_gather_quantized(group_, at_rest_on_device(group), full_parameters(group));
    } else if (options_.quantized_weights && group_.size() > 1) {
      quantized_all_gather(group_, at_rest_on_device(group), full_parameters(group));
    } else {
      gather_from_owners(at_rest_on_device(group), full_parameters(group), group_, options_.use_all_gather);
    }
  }
}

// A slice in host memory is copied to where it belongs in the whole; an encoded one has no such place.
at::Tensor GatheredParameters::at_rest_on_device(int group) const {
  const at::Tensor& at_rest = at_rest_.slices[group];
  if (at_rest.defined() && at_rest.device() == options_.device) return at_rest;
  const at::Tensor own = own_slice(full_parameters(group), group_);
  if (const StoredSlice* stored = stored_[group]) {
    const auto options = own.options().dtype(stored->dtype);
    const at::Tensor read = stored->dtype == own.scalar_type() ? own : at::empty({stored->numel()}, options);
    at_rest_.store->read(group, read);
    return read;
  }
  if (copies_) {
    const bool is_own = at_rest.scalar_type() == own.scalar_type();
    const at::Tensor values = is_own ? own : at::empty(at_rest.sizes(), own.options().dtype(at_rest.scalar_type()));
    copies_->upload(at_rest, values);
    return values;
  }
  const OffloadScope scope(kUploadScope, at_rest.nbytes());
  if (at_rest.scalar_type() != own.scalar_type()) return at_rest.to(options_.device, /*non_blocking=*/true);
  own.copy_(at_rest, /*non_blocking=*/true);
  return own;
}

void GatheredParameters::gather_from_host(Unit& unit) {
  for (size_t i = 0; i < unit.groups.size(); ++i) {
    gather_from_owners(unit.secondary[i], full_parameters(unit.groups[i]), *options_.secondary_group,
                       options_.use_all_gather);
  }
}

void GatheredParameters::store_secondary(Unit& unit) {
  unit.secondary.resize(unit.groups.size());
  for (size_t i = 0; i < unit.groups.size(); ++i) {
    const at::Tensor part = own_slice(full_parameters(unit.groups[i]), *options_.secondary_group);
    if (!unit.secondary[i].defined()) unit.secondary[i] = at::empty_like(part);
    unit.secondary[i].copy_(part);
  }
  unit.secondary_is_current = true;
}

bool GatheredParameters::is_used_by_other_unit(const SlotBuffer& buffer, int unit) const {
  return buffer.unit >= 0 && buffer.unit != unit && units_[buffer.unit].pins > 0 &&
         units_[buffer.unit].buffer.get() == &buffer;
}

std::shared_ptr<GatheredParameters::SlotBuffer> GatheredParameters::buffer_for(int index) {
  const Unit& unit = units_[index];
  const bool is_bound = unit.buffer && (unit.pins > 0 || unit.open_calls > 0);
  const auto& wanted = is_bound ? unit.buffer : slots_[unit.slot];
  if (!is_used_by_other_unit(*wanted, index)) return wanted;
  if (is_bound) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("unit '{}' is needed for backward in memory where unit '{}' is still running. Give "
                                "stage 3 more memory (zero_optimization.stage3_prefetch_bucket_size and "
                                "stage3_max_live_parameters), or combine the two units into one (\"units\")",
                                table_.units[index].name, table_.units[wanted->unit].name));
  }
  // The memory may have been in use until just now: the gather waits for the computation enqueued so far.
  const at::Tensor bytes = at::empty({unit.num_bytes}, slots_[0]->bytes.options());
  return std::make_shared<SlotBuffer>(SlotBuffer{bytes, -1, streams_.mark()});
}

void GatheredParameters::hold(int index) {
  Unit& unit = units_[index];
  if (unit.groups.empty()) return;
  unit.pins += 1;
  streams_.wait(unit.ready);
}

void GatheredParameters::release(int index) {
  Unit& unit = units_[index];
  if (unit.groups.empty()) return;
  DSL_CHECK(unit.pins > 0, fmt::format("unit '{}' was not held", table_.units[index].name));
  unit.pins -= 1;
  unit.buffer->last_use = streams_.mark();
}

void GatheredParameters::backward_done(int index) {
  Unit& unit = units_[index];
  if (unit.groups.empty()) return;
  if (unit.pins == 0) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("backward reached {} before its parameters were gathered again: its results reach the "
                                "loss without passing through its outputs (through an attribute of a module?). Name "
                                "other \"units\" in the config, or use ZeRO stage 2",
                                index == 0 ? "the root" : "unit '" + table_.units[index].name + "'"));
  }
  release(index);
  unit.open_calls -= 1;
}

at::Tensor GatheredParameters::full_parameters(int group) const {
  const FlatGroup& layout = groups_[group];
  const Unit& unit = units_[layout.unit];
  const auto index = std::find(unit.groups.begin(), unit.groups.end(), group) - unit.groups.begin();
  return unit.buffer->bytes.narrow(0, unit.offsets[index], bytes_of(layout)).view(layout.dtype);
}

void GatheredParameters::end_pass(std::span<const UnitEvent> next) {
  for (Unit& unit : units_) {
    // Also for gathers that no call here has waited for (a prefetch, or another rank's gather): their memory may be
    // freed now, and their input may be overwritten.
    if (unit.buffer) streams_.wait(unit.ready);
    if (unit.buffer && unit.pins > 0) unit.buffer->last_use = streams_.mark();
    unit.pins = unit.open_calls = 0;
    unit.buffer = nullptr;
  }
  last_slot_ = -1;
  std::fill(unit_in_slot_.begin(), unit_in_slot_.end(), -1);
  read_ahead(next);
}

void GatheredParameters::shards_changed(std::span<const UnitEvent> next) {
  changed_ = streams_.mark();
  forget_secondary();
  read_ahead(next);
}

void GatheredParameters::forget_secondary() {
  for (Unit& unit : units_) unit.secondary_is_current = false;
}

}  // namespace dslaunch::runtime
