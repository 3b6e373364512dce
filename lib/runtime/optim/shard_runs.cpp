#include "runtime/optim/shard_runs.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"

namespace dslaunch::runtime::optim {
namespace {

ShardTensors run_of(const ShardTensors& shard, int64_t begin, int64_t end, int group) {
  ShardTensors run = shard;
  run.master = shard.master.narrow(0, begin, end - begin);
  if (shard.gradient.defined()) run.gradient = shard.gradient.narrow(0, begin, end - begin);
  if (shard.low_precision.defined()) run.low_precision = shard.low_precision.narrow(0, begin, end - begin);
  run.group = group;
  run.range = {shard.range.begin + begin, shard.range.begin + end};
  return run;
}

}  // namespace

std::vector<ShardTensors> split_by_group(const ShardTensors& shard, const FlatGroup& layout,
                                         const std::vector<int>& group_of) {
  DSL_CHECK(shard.master.numel() == shard.range.size(), "a shard's range is as long as its tensors");
  std::vector<ShardTensors> runs;
  int64_t begin = 0;
  int group = layout.segments.empty() ? 0 : group_of.at(static_cast<size_t>(layout.segments.back().parameter));
  const auto pieces = pieces_in(layout, shard.range);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int of_piece = group_of.at(static_cast<size_t>(pieces[i].parameter));
    if (i > 0 && of_piece != group) {
      runs.push_back(run_of(shard, begin, pieces[i].offset, group));
      begin = pieces[i].offset;
    }
    group = of_piece;
  }
  runs.push_back(run_of(shard, begin, shard.range.size(), group));
  return runs;
}

void allocate_moments(const FlatOptimizer& optimizer, ShardTensors& run) {
  constexpr int64_t kPerBoundary = 16 / sizeof(float);
  const auto address = reinterpret_cast<uintptr_t>(run.master.data_ptr()) / sizeof(float);
  const auto lead = static_cast<int64_t>(address % kPerBoundary);
  const size_t count = optimizer.moment_names(run.group).size();
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor whole =
        at::full({run.master.numel() + lead}, optimizer.initial_moment(run.group, i), run.master.options());
    run.moments.push_back(whole.narrow(0, lead, run.master.numel()));
  }
}

}  // namespace dslaunch::runtime::optim
