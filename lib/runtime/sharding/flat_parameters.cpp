#include "runtime/sharding/flat_parameters.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/sharding/quantized_codec.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime {
namespace {

// Values in fp32 come this many at a time: few enough that the buffer stays in the cache and is the same memory for one
// parameter after the other; of what is written to files more, since each write waits for the disk.
constexpr int64_t kReadChunk = 1 << 20;
constexpr int64_t kStoredChunk = 16 << 20;

void read_in_chunks(const FlatParameters::ReadElements& read, int parameter, int64_t begin, int64_t count,
                    int64_t chunk, const std::function<void(int64_t at, const at::Tensor& values)>& take) {
  const at::Tensor buffer = at::empty({std::min(count, chunk)}, at::kFloat);
  for (int64_t at = 0; at < count; at += chunk) {
    at::Tensor values = buffer.narrow(0, 0, std::min(chunk, count - at));
    read(parameter, begin + at, values);
    take(at, values);
  }
}

}  // namespace

FlatParameters::FlatParameters(const ParameterTable& table, ShardingOptions options, StepStreams& streams,
                               comm::Communicator& data_group, comm::Communicator& gather_group)
    : table_(table),
      options_(std::move(options)),
      streams_(streams),
      data_group_(data_group),
      shard_index_(options_.stage >= 1 ? data_group.rank() : 0),
      layout_(plan_state_layout(table, options_, data_group.size())),
      groups_(layout_.groups),
      locations_(locate_parameters(table, groups_)),
      frozen_locations_(locate_frozen_parameters(table, groups_)),
      is_sharded_frozen_(table.parameters.size()),
      resident_(groups_.size()),
      resident_ready_(groups_.size()),
      collective_order_(data_group, collective_order_options()),
      views_(table.units.size()) {
  if (options_.offload.optimizer_share > 0 || options_.offload.parameters)
    options_.offload.reserve(offloaded_bytes(layout_, options_, data_group.size(), data_group.rank()));
  std::vector<at::Tensor> at_rest;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].is_gathered) allocate_resident(i);
    at_rest.push_back(groups_[i].is_frozen ? make_frozen_shard(i) : make_state(i));
  }
  if (options_.offload.store_state) gradient_store_ = options_.offload.store_state(state_);
  gathered_ = std::make_unique<GatheredParameters>(table_, groups_, store_parameters(std::move(at_rest)), options_,
                                                   streams_, gather_group);
  sink_ = make_sink();
  gradients_ = (options_.stage >= 2 ? make_sharded_gradients : make_bucketed_all_reduce)(
      table_, layout_.trained(), *sink_, options_, streams_, data_group_);
}

bool FlatParameters::offloads_state() const {
  return std::find(layout_.is_offloaded.begin(), layout_.is_offloaded.end(), true) != layout_.is_offloaded.end();
}

std::unique_ptr<GradientSink> FlatParameters::make_sink() {
  HostGradientOptions host;
  for (size_t i = 0; i < layout_.num_trained; ++i) {
    host.own_ranges.push_back(own_range(i));
    host.is_offloaded.push_back(layout_.is_offloaded[i]);
    host.dtypes.push_back(gradient_dtype(groups_[i], options_, data_group_.size()));
  }
  // Stages 0 and 1 add up micro batches themselves.
  host.sum_dtype = options_.stage >= 2 ? options_.accumulation_dtype : at::kFloat;
  auto resident = make_device_gradients({host.own_ranges, host.dtypes, host.sum_dtype, options_.device}, state_);
  if (options_.offload.optimizer_share == 0) return resident;
  host.allocate = [this](int64_t numel, at::ScalarType dtype) {
    return options_.offload.allocate(numel, dtype, HostUse::kGradient);
  };
  host.store = gradient_store_;
  if (!host.store && options_.offload.copies) host.copies = options_.offload.copies(HostUse::kGradient);
  host.are_kept = options_.offload.keeps_gradients;
  host.sum_of_squares = options_.offload.sum_of_squares;
  host.begins_early = [this] {  // what is delivered after backward is left to the order of use
    return in_training_pass_ && updates_ != nullptr && updates_->takes_early_groups();
  };
  host.begin_early = [this](std::span<const SpanState> group, const at::Tensor& squares) {
    begin_early_update(group, squares);
  };
  if (options_.counted_ranges) {
    host.counted_ranges = [this](const StateSpan& span) {
      return options_.counted_ranges(groups_[static_cast<size_t>(span.flat_group)], span);
    };
  }
  return make_host_gradients(std::move(resident), std::move(host), state_);
}

// Of parameters that are gathered: on the device or on the host; undefined for those in files.
at::Tensor FlatParameters::zeros_at_rest(size_t group, int64_t numel, at::ScalarType dtype) const {
  if (layout_.is_stored[group]) return {};
  if (options_.offload.parameters) return options_.offload.allocate(numel, dtype, HostUse::kParameter);
  return at::zeros({numel}, at::TensorOptions().device(options_.device).dtype(dtype));
}

// Files are zero at first, like memory.
GatheredParameters::AtRest FlatParameters::store_parameters(std::vector<at::Tensor> slices) {
  GatheredParameters::AtRest out{std::move(slices), {}, stored_slices(layout_, options_, data_group_.rank())};
  if (out.stored.empty()) return out;
  out.store = options_.offload.store_parameters(out.stored);
  for (auto& [span, arrays] : state_) {
    const auto group = static_cast<size_t>(span.flat_group);
    if (!layout_.is_stored[group]) continue;
    arrays.stored_parameter =
        StoredParameter{out.store, span.flat_group, span.range.begin - own_range(group).begin, groups_[group].dtype};
  }
  parameter_store_ = out.store;
  return out;
}

void FlatParameters::allocate_resident(size_t index) {
  const auto& group = groups_[index];
  resident_[index] = at::zeros({group.padded_numel}, at::TensorOptions().device(options_.device).dtype(group.dtype));
}

at::Tensor FlatParameters::make_state(size_t index) {
  const auto& group = groups_[index];
  const Range own = own_range(index);
  const at::Tensor at_rest = group.is_gathered ? zeros_at_rest(index, own.size(), group.dtype)
                                               : resident_[index].narrow(0, own.begin, own.size());
  StateArrays arrays;
  if (options_.for_evaluation) {
    if (at_rest.defined()) arrays = arrays_without_master(at_rest);
  } else if (layout_.is_offloaded[index]) {
    const bool is_stored = static_cast<bool>(options_.offload.store_state);
    if (!is_stored) arrays.master = options_.offload.allocate(own.size(), at::kFloat, HostUse::kState);
    arrays.low_precision = at_rest;
    arrays.is_offloaded = true;
  } else if (layout_.is_stored[index]) {
    arrays.master = at::zeros({own.size()}, at::TensorOptions().device(options_.device).dtype(at::kFloat));
  } else {
    arrays = arrays_of_parameter(at_rest, options_.device);
  }
  for (const auto& span : plan_spans(group, static_cast<int>(index), own, options_.optimizer_groups)) {
    state_.push_back({span, narrow(arrays, span.range.begin - own.begin, span.numel())});
  }
  return at_rest;
}

at::Tensor FlatParameters::make_frozen_shard(size_t index) {
  const auto& group = groups_[index];
  const Range own = own_range(index);
  const bool quantized = options_.quantized_frozen;
  const int64_t numel = quantized ? wire_bytes(own.size(), kWeightWire) : own.size();
  const auto dtype = quantized ? at::kByte : group.dtype;
  frozen_shards_.push_back({static_cast<int>(index), own, zeros_at_rest(index, numel, dtype)});
  for (const auto& segment : group.segments) is_sharded_frozen_[static_cast<size_t>(segment.parameter)] = true;
  return frozen_shards_.back().at_rest;
}

CollectiveOrder::Options FlatParameters::collective_order_options() {
  CollectiveOrder::Options out;
  out.device = options_.device;
  for (const auto& unit : table_.units) out.unit_names.push_back(unit.name);
  out.participate = [this](UnitEvent event) { participate(event); };
  out.barrier = options_.barrier ? options_.barrier : [](const std::string& text) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("{} was not part of the first step, and there is no barrier for the ranks to agree on it", text));
  };
  return out;
}

void FlatParameters::load(const ReadElements& read, const std::function<void()>& barrier) {
  load_trained(read);
  load_frozen(read);
  if (barrier) barrier();
  gather_parameters();
  finish_updates();
}

void FlatParameters::load_trained(const ReadElements& read) {
  for (auto& [span, own] : state_) {
    const StateArrays& arrays = own;
    const at::Tensor& destination = arrays.master.defined() ? arrays.master : arrays.low_precision;
    const int64_t chunk = arrays.stored || arrays.stored_parameter ? kStoredChunk : kReadChunk;
    for (const auto& piece : pieces_in(groups_[span.flat_group], span.range)) {
      read_in_chunks(read, piece.parameter, piece.begin, piece.count, chunk, [&](int64_t at, const at::Tensor& values) {
        const int64_t begin = piece.offset + at;
        if (arrays.stored) arrays.stored->write(StoredArrays::kMaster, begin, values);
        if (arrays.stored_parameter) arrays.stored_parameter->write(begin, values);
        if (destination.defined()) destination.narrow(0, begin, values.numel()).copy_(values);
      });
    }
    if (!arrays.stored_parameter) round_to_parameters(arrays);
  }
}

void FlatParameters::load_frozen(const ReadElements& read) {
  for (auto& shard : frozen_shards_) {
    const auto& group = groups_[shard.group];
    const bool is_stored = !shard.at_rest.defined();
    if (is_stored && !options_.quantized_frozen) {
      load_stored(read, shard);
      continue;
    }
    at::Tensor own = at::zeros({shard.range.size()}, group.dtype);
    for (const auto& piece : pieces_in(group, shard.range)) {
      read_in_chunks(read, piece.parameter, piece.begin, piece.count, kReadChunk,
                     [&](int64_t at, const at::Tensor& values) {
                       own.narrow(0, piece.offset + at, values.numel()).copy_(fitted(values, group.dtype));
                     });
    }
    const at::Tensor values = options_.quantized_frozen ? quantize(own, kWeightWire) : own;
    if (is_stored) {
      parameter_store_->write(shard.group, 0, values);
    } else {
      shard.at_rest.copy_(values);
    }
  }
}

void FlatParameters::load_stored(const ReadElements& read, const FrozenShard& shard) {
  const auto& group = groups_[shard.group];
  for (const auto& piece : pieces_in(group, shard.range)) {
    read_in_chunks(read, piece.parameter, piece.begin, piece.count, kStoredChunk,
                   [&](int64_t at, const at::Tensor& values) {
                     parameter_store_->write(shard.group, piece.offset + at, fitted(values, group.dtype));
                   });
  }
}

// The root runs around all other units: in a pass without backward, the call of the root is the whole pass.
UnitValues FlatParameters::acquire(int unit, UnitCall call) {
  if (unit == 0 && !in_training_pass_) {
    if (in_inference_pass_) end_inference_pass();  // its root was never released: an output was a parameter of the root
    in_inference_pass_ = true;
    using Pass = CollectiveOrder::Pass;
    collective_order_.begin_pass(generates_ ? Pass::kGeneration : Pass::kInference);
  }
  ensure_gathered(unit, call == UnitCall::kRecompute ? UnitEvent::Kind::kBackward : UnitEvent::Kind::kForward);
  if (call == UnitCall::kTraining) {
    gathered_->expect_backward(unit);
    if (!locations_[unit].empty()) gradients_->expect(unit);
  }
  // In a pipeline, a rank that waited here for one that skips a unit would hold up the other stages, and they that one.
  if (micro_batches_overlap_ && layout_.num_shards > 1) publish(groups_.size());
  for (const auto& location : locations_[unit]) publish(static_cast<size_t>(location.group) + 1);
  for (const auto& location : locations_[unit]) streams_.wait(resident_ready_[location.group]);
  UnitValues out = views_of(unit);
  for (auto* views : {&out.parameters, &out.frozen}) {
    for (auto& view : *views) view = view.defined() ? view.variable_data() : view;
  }
  return out;
}

void FlatParameters::release(int unit) {
  gathered_->release(unit);
  if (unit == 0 && in_inference_pass_) end_inference_pass();
}

void FlatParameters::end_inference_pass() {
  if (orders_collectives()) collective_order_.end_pass();
  gathered_->end_pass(collective_order_.next_pass());
  in_inference_pass_ = false;
}

void FlatParameters::prepare_backward(int unit) {
  ensure_gathered(unit, UnitEvent::Kind::kBackward);
}

// The root's backward lasts as long as that of all other units. Its buffer would take memory from the beginning of a
// backward, when activations take the most, or would keep one of two buckets from the others.
std::optional<GradientDestination> FlatParameters::gradient_destination(int unit, size_t parameter,
                                                                        at::ScalarType factors) {
  if (unit == 0 && table_.units.size() > 1) return std::nullopt;
  const at::NoGradGuard no_grad;
  auto out = gradients_->destination(unit, parameter, factors);
  if (out) out->sum = out->sum.view(table_.parameters[table_.units[unit].parameters[parameter]].shape);
  return out;
}

void FlatParameters::take_gradients(int unit, std::vector<at::Tensor> gradients) {
  at::NoGradGuard no_grad;
  publish(groups_.size());  // also groups that no call has used: before the first reduction, on every rank
  if (!locations_[unit].empty()) {
    const UnitEvent event{UnitEvent::Kind::kReduce, unit};
    if (orders_collectives()) collective_order_.arrive(event);
    gradients_->take(unit, std::move(gradients), collective_order_.may_follow(event));
  }
  gathered_->backward_done(unit);
}

void FlatParameters::ensure_gathered(int unit, UnitEvent::Kind kind) {
  if (!gathered_->has(unit)) return;
  collective_order_.arrive({kind, unit});
  gathered_->unshard(unit, collective_order_.ahead());
  gathered_->hold(unit);
}

void FlatParameters::participate(UnitEvent event) {
  if (event.kind == UnitEvent::Kind::kReduce) {
    gradients_->participate(event.unit, collective_order_.may_follow(event));
  } else {
    gathered_->unshard(event.unit, collective_order_.ahead());
  }
}

bool FlatParameters::gathers_units() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const FlatGroup& group) { return group.is_gathered; });
}

at::Tensor FlatParameters::full_parameters(int group) const {
  return groups_[group].is_gathered ? gathered_->full_parameters(group) : resident_[group];
}

at::Tensor FlatParameters::view_at(SegmentLocation location) const {
  const Segment& segment = groups_[location.group].segments[location.segment];
  return full_parameters(location.group)
      .narrow(0, segment.offset, segment.numel)
      .view(table_.parameters[segment.parameter].shape);
}

const UnitValues& FlatParameters::views_of(int unit) {
  auto& [known_address, values] = views_[unit];
  const void* address = gathered_->address(unit);
  const bool is_known =
      values.parameters.size() == locations_[unit].size() && values.frozen.size() == frozen_locations_[unit].size();
  if (is_known && known_address == address) return values;
  known_address = address;
  values = {};
  for (const auto& location : locations_[unit]) values.parameters.push_back(view_at(location));
  for (const auto& location : frozen_locations_[unit]) {
    values.frozen.push_back(location ? view_at(*location) : at::Tensor());
  }
  return values;
}

void FlatParameters::begin_accumulation_step(bool is_last) {
  in_training_pass_ = true;
  is_last_pass_ = is_last;
  collective_order_.begin_pass(CollectiveOrder::Pass::kTraining);
  gradients_->begin_accumulation_step(is_last);
}

void FlatParameters::begin_overlapping_micro_batches() {
  DSL_CHECK(!orders_collectives(), "micro batches overlap at stages 0 and 1 only");
  begin_accumulation_step(/*is_last=*/false);
  micro_batches_overlap_ = true;
}

void FlatParameters::begin_last_backward() {
  gradients_->begin_last_backward();
}

void FlatParameters::end_accumulation_step() {
  if (orders_collectives()) collective_order_.end_pass();
  gathered_->end_pass(is_last_pass_ ? std::span<const UnitEvent>() : collective_order_.next_pass());
  in_training_pass_ = micro_batches_overlap_ = false;
}

void FlatParameters::reduce_gradients() {
  gradients_->finish();
  sink_->finish();
  // Units that this step did not run have not waited for their gather, and the optimizer is about to overwrite its
  // input.
  for (const auto& ready : resident_ready_) streams_.wait(ready);
}

void FlatParameters::release_gradients() {
  gradients_->release();
  sink_->release();
}

void FlatParameters::gather_parameters() {
  gathered_->shards_changed(collective_order_.next_pass());
  streams_.wait(SideStream::kPublication, streams_.mark());
  num_published_ = 0;
  if (updates_ == nullptr) publish(groups_.size());
}

// Makes the groups up to `end` whole on every rank, those that are not gathered unit by unit.
void FlatParameters::publish(size_t end) {
  for (; num_published_ < end; ++num_published_) {
    const size_t i = num_published_;
    if (groups_[i].is_gathered) continue;
    if (layout_.is_offloaded[i] && updates_ != nullptr) {
      resident_ready_[i] = updates_->wait(static_cast<int>(i));
      streams_.wait(SideStream::kPublication, resident_ready_[i]);
    }
    if (layout_.num_shards == 1) continue;
    const Range own = own_range(i);
    const at::Tensor at_rest = resident_[i].narrow(0, own.begin, own.size());
    resident_ready_[i] = streams_.run(SideStream::kPublication, [&] {
      gather_from_owners(at_rest, resident_[i], data_group_, options_.use_all_gather);
    });
  }
}

// The update writes the parameters of the group, so nothing of this step may read them after this point of the stream
// that brings the gradients. That holds:
//   - A group's last slice comes from the last open call of its unit, when that call's backward has finished
//     (UnitParameters::take_gradients(), on which stage 3 relies when it gathers another unit into the memory):
//     autograd runs the nodes that one thread has created from last to first, and the node that takes the gradients was
//     created before all of the call's own, those of GEMMs for the inputs included. What else holds a tied or
//     borrowed parameter was created after it, too, or is one of the open calls. A recomputed call is one of them until
//     it has been recomputed and differentiated. On other ranks nothing reads this rank's memory but through
//     collectives.
//   - The reduction, whose stream this is, has waited for all of that computation.
//   - A gather that reads this rank's slice need not have been waited for: one ahead of use, or for a call of another
//     rank. No later one is issued: PendingUpdates::wait() refuses it.
void FlatParameters::begin_early_update(std::span<const SpanState> group, const at::Tensor& squares) {
  const int index = group.front().span.flat_group;
  streams_.wait(resident_ready_[static_cast<size_t>(index)]);
  gathered_->wait_for_gather(groups_[static_cast<size_t>(index)].unit);
  updates_->begin_early(group, squares);
}

void FlatParameters::finish_updates() {
  publish(groups_.size());
  for (size_t i = 0; i < groups_.size() && updates_ != nullptr; ++i) {
    if (groups_[i].is_gathered && layout_.is_offloaded[i]) streams_.wait(updates_->wait(static_cast<int>(i)));
  }
}

void FlatParameters::set_pending_updates(PendingUpdates& updates) {
  updates_ = &updates;
  gathered_->wait_for(updates, layout_.is_offloaded);
}

// At stages 2 and 3 the reduction of a call is a collective that all ranks issue at one place of backward.
void FlatParameters::set_deferred_gradients(DeferredGradients& deferred) {
  DSL_CHECK(!orders_collectives(), "weight gradients are deferred at stages 0 and 1 only");
  deferred_ = &deferred;
}

// An evaluation may have left a secondary copy, which no replay would renew.
void FlatParameters::begin_capture() {
  gathered_->forget_secondary();
}

void FlatParameters::abandon_pass() {
  gathered_->forget_secondary();
  gathered_->end_pass();
  release_gradients();
  in_training_pass_ = false;
}

double FlatParameters::gradient_divisor() const {
  return data_group_.size() / options_.predivide;
}

}  // namespace dslaunch::runtime
