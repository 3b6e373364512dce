// Stages 2 and 3: the gradients of a call are reduced immediately from a bucket and delivered. There are two buckets:
// backward fills one while the other is being reduced. A call may reserve one for a group of its unit, to write
// GEMMs into it while its backward runs, or else the largest group has one; all other groups then go through the
// other one. The largest group is reduced last, so that the bucket of the others is free first, for the next unit.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/sharding/gradient_copies.hpp"
#include "runtime/sharding/gradient_reduction.hpp"
#include "runtime/sharding/gradient_writes.hpp"
#include "runtime/sharding/quantized_collectives.hpp"
#include "runtime/sharding/segment_locations.hpp"
#include "runtime/sharding/state_layout.hpp"

namespace dslaunch::runtime {
namespace {

// By unit, from the smallest to the largest: the same order on all ranks.
std::vector<std::vector<int>> ascending_groups(const ParameterTable& table, std::span<const FlatGroup> groups) {
  auto out = groups_by_unit(table, groups);
  for (auto& of_unit : out) {
    std::ranges::stable_sort(of_unit, {}, [&](int group) { return groups[group].padded_numel; });
  }
  return out;
}

class ShardedGradients final : public GradientReduction {
 public:
  ShardedGradients(const ParameterTable& table, std::span<const FlatGroup> groups, GradientSink& sink,
                   const ShardingOptions& options, StepStreams& streams, comm::Communicator& data_group)
      : groups_(groups),
        sink_(sink),
        options_(options),
        streams_(streams),
        data_group_(data_group),
        locations_(locate_parameters(table, groups)),
        groups_of_unit_(ascending_groups(table, groups)),
        is_delivered_(groups.size()),
        open_calls_(table.units.size()) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      feedback_.push_back(options_.loco
                              ? std::make_unique<ErrorFeedback>(options_.loco->beta, options_.loco->reset_interval)
                              : nullptr);
    }
    for (auto& bucket : buckets_) bucket.bytes = at::empty({bucket_bytes(groups_, options_)}, on_device(at::kByte));
  }

  void begin_accumulation_step(bool is_last) override {
    in_last_step_ = is_last;
    reserved_.reset();
    std::fill(open_calls_.begin(), open_calls_.end(), 0);
  }

  // FlatParameters lets micro batches overlap at stages 0 and 1 only.
  void begin_last_backward() override {}

  void expect(int unit) override { open_calls_[unit] += 1; }

  // Whose call writes does not matter: every part is in some reduction of the group.
  std::optional<GradientDestination> destination(int unit, size_t parameter, at::ScalarType factors) override {
    const auto location = locations_[unit][parameter];
    const FlatGroup& group = groups_[location.group];
    if (!holds_gemms(wire_dtype(group, options_), factors, options_.device)) return std::nullopt;
    const bool is_first = !is_delivered_[location.group];
    if (!keeps_bits(options_.accumulation_dtype, factors, options_.device, is_first)) return std::nullopt;
    if (!reserved_) reserved_ = begin_bucket(location.group);
    if (reserved_->group != location.group) return std::nullopt;
    const Segment& segment = group.segments[location.segment];
    const at::Tensor slice = reserved_->wire.narrow(0, segment.offset, segment.numel);
    if (!is_fast_to_write(slice)) return std::nullopt;
    const bool is_empty = !reserved_->written[location.segment];
    reserved_->written[location.segment] = true;
    return GradientDestination{slice, is_empty};
  }

  void take(int unit, std::vector<at::Tensor> gradients, bool others_may_follow) override {
    open_calls_[unit] -= 1;
    reduce_unit(unit, gradients, others_may_follow);
  }

  void participate(int unit, bool others_may_follow) override {
    reduce_unit(unit, std::vector<at::Tensor>(locations_[unit].size()), others_may_follow);
  }

  void finish() override { wait_for_buckets(); }

  // Without a finish() before it (a pass that is only analyzed), reductions may still write to the sink's memory.
  void release() override {
    wait_for_buckets();
    reserved_.reset();
    std::fill(is_delivered_.begin(), is_delivered_.end(), false);
  }

 private:
  struct Bucket {
    at::Tensor bytes;
    StreamMark is_free;          // the end of its last reduction
    int64_t last_reduction = 0;  // its number
  };
  struct GroupInBucket {
    int group = 0;
    size_t bucket = 0;
    at::Tensor wire;            // the part of the bucket that it takes
    std::vector<bool> written;  // by segment: by GEMMs
  };

  at::TensorOptions on_device(at::ScalarType dtype) const {
    return at::TensorOptions().device(options_.device).dtype(dtype);
  }
  int64_t num_bytes(const FlatGroup& group) const {
    return group.padded_numel * static_cast<int64_t>(c10::elementSize(wire_dtype(group, options_)));
  }

  void wait_for_buckets() const {
    for (const auto& bucket : buckets_) streams_.wait(bucket.is_free);
  }

  void reduce_unit(int unit, const std::vector<at::Tensor>& gradients, bool others_may_follow) {
    const bool is_last = in_last_step_ && open_calls_[unit] == 0 && !others_may_follow;
    const auto& groups = groups_of_unit_[unit];
    if (!reserved_ && !groups.empty()) reserved_ = begin_bucket(groups.back());
    for (int group : groups) reduce(group, gradients, is_last);
  }

  // Whose last reduction was issued first.
  size_t earliest_bucket() const { return buckets_[0].last_reduction <= buckets_[1].last_reduction ? 0 : 1; }

  // The bucket that is reserved for the group, or a free one.
  GroupInBucket take_bucket(int group) {
    if (reserved_ && reserved_->group == group) return *std::exchange(reserved_, std::nullopt);
    return begin_bucket(group);
  }

  GroupInBucket begin_bucket(int index) {
    const FlatGroup& group = groups_[index];
    const size_t bucket = reserved_ ? 1 - reserved_->bucket : earliest_bucket();
    streams_.wait(buckets_[bucket].is_free);
    const at::Tensor bytes = buckets_[bucket].bytes.narrow(0, 0, num_bytes(group));
    return {index, bucket, bytes.view(wire_dtype(group, options_)), std::vector<bool>(group.segments.size())};
  }

  void reduce(int index, const std::vector<at::Tensor>& gradients, bool is_last) {
    const GroupInBucket own = take_bucket(index);
    const at::Tensor& wire = own.wire;
    fill(own, gradients);
    if (options_.predivide != 1.0) wire.div_(options_.predivide);
    const bool is_first = !is_delivered_[index];
    is_delivered_[index] = true;
    sink_.prepare(index, /*room=*/{});
    streams_.wait(SideStream::kReduction, streams_.mark());
    buckets_[own.bucket].last_reduction = ++num_reductions_;
    buckets_[own.bucket].is_free =
        streams_.run(SideStream::kReduction, [&] { sink_.deliver(index, reduced(index, wire), is_first, is_last); });
  }

  // This rank's slice of the sum over the ranks.
  at::Tensor reduced(int index, const at::Tensor& wire) {
    if (data_group_.size() > 1 && options_.quantized_gradients) {
      at::Tensor own = at::empty({wire.numel() / data_group_.size()}, wire.options().dtype(at::kFloat));
      quantized_reduce_scatter(data_group_, wire, own, kGradientWire, feedback_[index].get());
      return own;
    }
    if (data_group_.size() > 1) reduce_to_owners(wire, data_group_, options_.use_reduce_scatter);
    return own_slice(wire, data_group_);
  }

  void fill(const GroupInBucket& own, const std::vector<at::Tensor>& gradients) const {
    const FlatGroup& group = groups_[own.group];
    const auto& locations = locations_[group.unit];
    GradientCopies copies;
    for (size_t i = 0; i < locations.size(); ++i) {
      if (&groups_[locations[i].group] != &group) continue;
      const Segment& segment = group.segments[locations[i].segment];
      const bool is_written = own.written[locations[i].segment];
      const at::Tensor destination = own.wire.narrow(0, segment.offset, segment.numel);
      if (gradients[i].defined()) {
        copies.add(destination, gradients[i], /*is_first=*/!is_written);
      } else if (!is_written) {
        copies.zero(destination);
      }
    }
    copies.zero(own.wire.narrow(0, group.numel, group.padded_numel - group.numel));
    copies.run();
  }

  const std::span<const FlatGroup> groups_;
  GradientSink& sink_;
  const ShardingOptions& options_;
  StepStreams& streams_;
  comm::Communicator& data_group_;
  const std::vector<std::vector<SegmentLocation>> locations_;
  const std::vector<std::vector<int>> groups_of_unit_;
  std::vector<bool> is_delivered_;  // by group: in this step
  std::vector<int> open_calls_;     // by unit: calls of this rank whose gradients have not arrived yet
  bool in_last_step_ = false;       // the last accumulation step
  std::vector<std::unique_ptr<ErrorFeedback>> feedback_;  // by group; null without LoCo
  std::array<Bucket, kNumGradientBuckets> buckets_;
  static_assert(kNumGradientBuckets == 2);
  int64_t num_reductions_ = 0;
  std::optional<GroupInBucket> reserved_;  // of a call whose backward is running
};

}  // namespace

std::unique_ptr<GradientReduction> make_sharded_gradients(const ParameterTable& table,
                                                          std::span<const FlatGroup> groups, GradientSink& sink,
                                                          const ShardingOptions& options, StepStreams& streams,
                                                          comm::Communicator& data_group) {
  return std::make_unique<ShardedGradients>(table, groups, sink, options, streams, data_group);
}

}  // namespace dslaunch::runtime
