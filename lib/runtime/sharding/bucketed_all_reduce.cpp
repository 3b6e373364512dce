// Stages 0 and 1: the gradients of a unit are added up in buffers of this rank and reduced once a step, in a fixed
// order of units that needs no agreement between ranks.
//
// At stage 1, in a step of one micro batch, a buffer is dropped when it is reduced: this rank keeps its slice alone, in
// the sink. In other steps buffers stay until the update: later micro batches are added to them, and at stage 0 all of
// them is this rank's.
#include <ATen/ATen.h>

#include <deque>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/sharding/gradient_copies.hpp"
#include "runtime/sharding/gradient_reduction.hpp"
#include "runtime/sharding/gradient_writes.hpp"
#include "runtime/sharding/segment_locations.hpp"
#include "runtime/sharding/state_layout.hpp"

namespace dslaunch::runtime {
namespace {

class BucketedAllReduce final : public GradientReduction {
 public:
  BucketedAllReduce(const ParameterTable& table, std::span<const FlatGroup> groups, GradientSink& sink,
                    const ShardingOptions& options, StepStreams& streams, comm::Communicator& data_group)
      : groups_(groups),
        sink_(sink),
        options_(options),
        streams_(streams),
        data_group_(data_group),
        locations_(locate_parameters(table, groups)),
        groups_of_unit_(groups_by_unit(table, groups)),
        buffers_(groups.size()),
        open_calls_(table.units.size()),
        is_taken_(table.units.size()) {}

  void begin_accumulation_step(bool is_last) override {
    is_only_micro_batch_ = is_last && !has_begun_;
    drops_reduced_ = options_.stage == 1 && is_only_micro_batch_;
    has_begun_ = true;
    std::fill(open_calls_.begin(), open_calls_.end(), 0);
    reduces_as_ready_ = false;
    next_unit_ = static_cast<int>(groups_of_unit_.size()) - 1;
    if (is_last) begin_last_backward();
  }

  // Tied parameters wait for the other stages.
  void begin_last_backward() override {
    reduces_as_ready_ = (drops_reduced_ || streams_.overlaps()) && options_.tied.parameters.empty();
  }

  void expect(int unit) override { open_calls_[unit] += 1; }

  std::optional<GradientDestination> destination(int unit, size_t parameter, at::ScalarType factors) override {
    const auto location = locations_[unit][parameter];
    if (!holds_gemms(buffer_dtype(location.group), factors, options_.device)) return std::nullopt;
    const bool is_first_call = !is_taken_[unit];
    if (!keeps_bits(options_.accumulation_dtype, factors, options_.device, is_first_call)) return std::nullopt;
    auto& buffer = buffer_of_group(location.group);
    const at::Tensor& slice = buffer.segments[location.segment];
    if (!is_fast_to_write(slice)) return std::nullopt;
    const bool is_empty = !buffer.written[location.segment];
    buffer.written[location.segment] = true;
    return GradientDestination{slice, is_empty};
  }

  void take(int unit, std::vector<at::Tensor> gradients, bool) override {
    if (reduces_as_ready_) reduce_ready_units();  // those after it that this rank has not called
    DSL_CHECK(unit <= next_unit_, "the gradients of a unit arrive before it is reduced");
    const bool is_ready = reduces_as_ready_ && unit == next_unit_ && open_calls_[unit] == 1;
    for (int group : groups_of_unit_[unit]) {
      add(unit, group, gradients);
      if (is_ready) reduce_group(group);  // before the next one takes memory
    }
    open_calls_[unit] -= 1;
    is_taken_[unit] = true;
    if (is_ready) next_unit_ -= 1;
    if (reduces_as_ready_) reduce_ready_units();
  }

  void participate(int, bool) override {}  // every group is reduced once a step on every rank, whatever was called

  void finish() override {
    reduces_as_ready_ = false;
    sum_tied();
    for (; next_unit_ >= 0; --next_unit_) reduce_unit(next_unit_);
    streams_.wait(reduced_);
    under_reduction_.clear();
  }

  // Without a finish() before it, reductions may still read.
  void release() override {
    streams_.wait(reduced_);
    under_reduction_.clear();
    for (auto& buffer : buffers_) buffer = {};
    std::fill(is_taken_.begin(), is_taken_.end(), false);
    has_begun_ = false;
  }

 private:
  struct Buffer {                      // of a group; empty until its first gradient
    at::Tensor sum;                    // padded
    std::vector<at::Tensor> segments;  // 1-D views
    std::vector<bool> written;         // by segment
  };
  struct ReducedBuffer {
    at::Tensor sum;
    StreamMark is_free;  // the end of its reduction
  };

  Range own_range(const FlatGroup& group) const {
    return options_.stage == 0 ? Range{0, group.padded_numel}
                               : shard_range(group, data_group_.rank(), data_group_.size());
  }

  // The gradients of a call that is the step's only one for a buffer need no room for sums.
  at::ScalarType buffer_dtype(int index) const {
    const Buffer& buffer = buffers_[index];
    if (buffer.sum.defined()) return buffer.sum.scalar_type();
    const auto& group = groups_[index];
    const bool is_only_call = is_only_micro_batch_ && open_calls_[group.unit] <= 1;
    return is_only_call ? bucket_dtype(group, options_, data_group_.size()) : options_.accumulation_dtype;
  }

  Buffer& buffer_of_group(int index) {
    Buffer& buffer = buffers_[index];
    if (buffer.sum.defined()) return buffer;
    // One buffer is filled while others are reduced.
    while (std::ssize(under_reduction_) >= kNumGradientBuckets) {
      streams_.wait(under_reduction_.front().is_free);
      under_reduction_.pop_front();
    }
    const auto& group = groups_[index];
    const auto options = at::TensorOptions().device(options_.device).dtype(buffer_dtype(index));
    buffer.sum = at::empty({group.padded_numel}, options);
    buffer.sum.narrow(0, group.numel, group.padded_numel - group.numel).zero_();
    for (const auto& segment : group.segments)
      buffer.segments.push_back(buffer.sum.narrow(0, segment.offset, segment.numel));
    buffer.written.resize(group.segments.size());
    return buffer;
  }

  void add(int unit, int group, const std::vector<at::Tensor>& gradients) {
    GradientCopies copies;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto location = locations_[unit][i];
      if (!gradients[i].defined() || location.group != group) continue;
      auto& buffer = buffer_of_group(group);
      copies.add(buffer.segments[location.segment], gradients[i], !buffer.written[location.segment]);
      buffer.written[location.segment] = true;
    }
    copies.run();
  }

  // Of this rank's micro batches, over the stages that hold the parameter.
  void sum_tied() {
    for (int parameter : options_.tied.parameters) {
      const auto location = location_of(parameter);
      auto& buffer = buffer_of_group(location.group);
      at::Tensor& gradient = buffer.segments[location.segment];
      if (!buffer.written[location.segment]) gradient.zero_();
      buffer.written[location.segment] = true;
      options_.tied.sum(parameter, gradient);
    }
  }

  SegmentLocation location_of(int parameter) const {
    for (size_t group = 0; group < groups_.size(); ++group) {
      const auto& segments = groups_[group].segments;
      for (size_t i = 0; i < segments.size(); ++i) {
        if (segments[i].parameter == parameter) return {static_cast<int>(group), static_cast<int>(i)};
      }
    }
    throw InternalError(__FILE__, __LINE__, "location_of", "a tied parameter is in no group");
  }

  // Ranks must issue the same sequence, whatever order their gradients arrive in: a unit waits for the units after it.
  void reduce_ready_units() {
    for (; next_unit_ >= 0 && open_calls_[next_unit_] == 0; --next_unit_) reduce_unit(next_unit_);
  }

  void reduce_unit(int unit) {
    for (int group : groups_of_unit_[unit]) reduce_group(group);
  }

  void reduce_group(int index) {
    Buffer& buffer = buffer_of_group(index);  // also one without any gradient
    sink_.prepare(index, room_in(index));
    streams_.wait(SideStream::kReduction, streams_.mark());
    reduced_ = streams_.run(SideStream::kReduction, [&] { deliver(index); });
    if (!drops_reduced_) return;
    if (streams_.is_pending(reduced_)) under_reduction_.push_back({buffer.sum, reduced_});
    buffer = {};
  }

  // The sink may keep a slice where it is if that holds what is reduced and nothing around it stays for its sake.
  at::Tensor room_in(int index) const {
    const at::Tensor& sum = buffers_[index].sum;
    const Range own = own_range(groups_[index]);
    const bool is_held = holds_reduced(sum.scalar_type(), groups_[index], options_, data_group_.size());
    const bool lends = is_held && (!drops_reduced_ || own.size() == sum.numel());
    return lends ? sum.narrow(0, own.begin, own.size()) : at::Tensor();
  }

  void deliver(int index) {
    auto& buffer = buffers_[index];
    const Range own = own_range(groups_[index]);
    GradientCopies unused;
    for (size_t s = 0; s < buffer.written.size(); ++s) {
      if (!buffer.written[s]) unused.zero(buffer.segments[s]);
    }
    unused.run();
    if (options_.predivide != 1.0) buffer.sum.div_(options_.predivide);
    at::Tensor wire = buffer.sum;
    const bool averages = !options_.averages_gradients || options_.averages_gradients();
    if (data_group_.size() > 1 && averages) {
      wire = wire.to(wire_dtype(groups_[index], options_));
      if (own.size() < wire.numel()) {
        reduce_to_owners(wire, data_group_, options_.use_reduce_scatter);
      } else {
        data_group_.all_reduce(buffer_of(wire), comm::ReduceOp::kSum);
      }
    }
    sink_.deliver(index, wire.narrow(0, own.begin, own.size()), /*is_first=*/true, /*is_last=*/true);
  }

  const std::span<const FlatGroup> groups_;
  GradientSink& sink_;
  const ShardingOptions& options_;
  StepStreams& streams_;
  comm::Communicator& data_group_;
  const std::vector<std::vector<SegmentLocation>> locations_;
  const std::vector<std::vector<int>> groups_of_unit_;
  std::vector<Buffer> buffers_;                // by group
  std::deque<ReducedBuffer> under_reduction_;  // dropped ones whose reduction may still run, the oldest first
  std::vector<int> open_calls_;                // by unit: calls whose gradients have not arrived yet
  std::vector<bool> is_taken_;                 // by unit: the gradients of a call have arrived in this step
  int next_unit_ = -1;                         // units are reduced from the last to the root, in this fixed order
  bool has_begun_ = false;                     // an accumulation step, since release()
  bool is_only_micro_batch_ = false;           // of this step
  bool drops_reduced_ = false;                 // in this step
  bool reduces_as_ready_ = false;              // in the backward that runs
  StreamMark reduced_;
};

}  // namespace

std::unique_ptr<GradientReduction> make_bucketed_all_reduce(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups, GradientSink& sink,
                                                            const ShardingOptions& options, StepStreams& streams,
                                                            comm::Communicator& data_group) {
  return std::make_unique<BucketedAllReduce>(table, groups, sink, options, streams, data_group);
}

}  // namespace dslaunch::runtime
