// Stages 2 and 3: the gradients of a call are reduced immediately from a bucket and accumulated in the shards. There
// are two buckets: backward fills one while the other is being reduced.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/sharding/gradient_copies.hpp"
#include "runtime/sharding/gradient_reduction.hpp"
#include "runtime/sharding/quantized_collectives.hpp"
#include "runtime/sharding/segment_locations.hpp"
#include "runtime/sharding/side_stream.hpp"

namespace dslaunch::runtime {
namespace {

class ShardedGradients final : public GradientReduction {
 public:
  ShardedGradients(const ParameterTable& table, std::span<const FlatGroup> groups, std::vector<Range> own_ranges,
                   std::span<SpanState> state, const ShardingOptions& options, comm::Communicator& data_group)
      : groups_(groups),
        own_ranges_(std::move(own_ranges)),
        state_(state),
        options_(options),
        data_group_(data_group),
        locations_(locate_parameters(table, groups)),
        groups_of_unit_(table.units.size()),
        sums_(groups.size()),
        side_(options.device, options.overlap_communication) {
    int64_t largest = 0;
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_of_unit_[groups_[i].unit].push_back(static_cast<int>(i));
      largest = std::max(largest, num_bytes(groups_[i]));
      feedback_.push_back(options_.loco
                              ? std::make_unique<ErrorFeedback>(options_.loco->beta, options_.loco->reset_interval)
                              : nullptr);
    }
    for (auto& bucket : buckets_) bucket.bytes = at::empty({largest}, on_device(at::kByte));
  }

  void begin_accumulation_step(bool) override {}
  void expect(int) override {}

  void take(int unit, std::vector<at::Tensor> gradients) override {
    for (int group : groups_of_unit_[unit]) reduce(group, gradients);
  }

  void participate(int unit) override { take(unit, std::vector<at::Tensor>(locations_[unit].size())); }

  void finish() override {
    wait_for_buckets();
    for (size_t i = 0; i < groups_.size(); ++i) {
      set_gradient(
          state_, static_cast<int>(i), own_ranges_[i].begin,
          sums_[i].defined() ? sums_[i].to(at::kFloat) : at::zeros({own_ranges_[i].size()}, on_device(at::kFloat)));
    }
  }

  // Without a finish() before it (a pass that is only analyzed), reductions may still write to the sums.
  void release() override {
    wait_for_buckets();
    for (auto& sum : sums_) sum = at::Tensor();
    for (auto& [span, arrays] : state_) arrays.gradient = at::Tensor();
  }

  void wait_all_streams() override {
    wait_for_buckets();
    clear_marks();
  }
  void clear_marks() override {
    for (auto& bucket : buckets_) bucket.is_free = nullptr;
  }

 private:
  struct Bucket {
    at::Tensor bytes;
    StreamMark is_free;  // the end of its last reduction
  };

  at::TensorOptions on_device(at::ScalarType dtype) const {
    return at::TensorOptions().device(options_.device).dtype(dtype);
  }
  at::ScalarType wire_dtype(const FlatGroup& group) const { return options_.communication_dtype.value_or(group.dtype); }
  int64_t num_bytes(const FlatGroup& group) const {
    return group.padded_numel * static_cast<int64_t>(c10::elementSize(wire_dtype(group)));
  }

  void wait_for_buckets() const {
    for (const auto& bucket : buckets_) wait_on_current_stream(bucket.is_free, options_.device);
  }

  void reduce(int index, const std::vector<at::Tensor>& gradients) {
    const FlatGroup& group = groups_[index];
    Bucket& bucket = buckets_[next_bucket_];
    next_bucket_ = (next_bucket_ + 1) % buckets_.size();
    wait_on_current_stream(bucket.is_free, options_.device);
    const at::Tensor wire = bucket.bytes.narrow(0, 0, num_bytes(group)).view(wire_dtype(group));
    fill(wire, group, gradients);
    if (options_.predivide != 1.0) wire.div_(options_.predivide);
    const bool is_first = !sums_[index].defined();
    if (is_first) sums_[index] = at::empty({own_ranges_[index].size()}, on_device(options_.accumulation_dtype));
    side_.wait(mark_current_stream(options_.device));
    bucket.is_free = side_.run([&] {
      const at::Tensor own = reduced(index, wire);
      is_first ? sums_[index].copy_(own) : sums_[index].add_(own);
    });
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

  void fill(const at::Tensor& wire, const FlatGroup& group, const std::vector<at::Tensor>& gradients) {
    const auto& locations = locations_[group.unit];
    GradientCopies copies;
    for (size_t i = 0; i < locations.size(); ++i) {
      if (&groups_[locations[i].group] != &group) continue;
      const Segment& segment = group.segments[locations[i].segment];
      const at::Tensor destination = wire.narrow(0, segment.offset, segment.numel);
      if (gradients[i].defined()) {
        copies.add(destination, gradients[i], /*is_first=*/true);
      } else {
        copies.zero(destination);
      }
    }
    copies.zero(wire.narrow(0, group.numel, group.padded_numel - group.numel));
    copies.run();
  }

  const std::span<const FlatGroup> groups_;
  const std::vector<Range> own_ranges_;
  const std::span<SpanState> state_;
  const ShardingOptions& options_;
  comm::Communicator& data_group_;
  const std::vector<std::vector<SegmentLocation>> locations_;
  std::vector<std::vector<int>> groups_of_unit_;
  std::vector<at::Tensor> sums_;  // by group, in the accumulation dtype; undefined until its first gradient
  std::vector<std::unique_ptr<ErrorFeedback>> feedback_;  // by group; null without LoCo
  std::array<Bucket, 2> buckets_;
  size_t next_bucket_ = 0;
  SideStream side_;
};

}  // namespace

std::unique_ptr<GradientReduction> make_sharded_gradients(const ParameterTable& table,
                                                          std::span<const FlatGroup> groups,
                                                          std::vector<Range> own_ranges, std::span<SpanState> state,
                                                          const ShardingOptions& options,
                                                          comm::Communicator& data_group) {
  return std::make_unique<ShardedGradients>(table, groups, std::move(own_ranges), state, options, data_group);
}

}  // namespace dslaunch::runtime
