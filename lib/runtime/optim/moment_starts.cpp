#include "runtime/optim/moment_starts.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

MomentStarts::MomentStarts(std::vector<int64_t> applied_steps) {
  if (std::all_of(applied_steps.begin(), applied_steps.end(), [](int64_t start) { return start == 0; })) return;
  distinct_ = applied_steps;
  std::sort(distinct_.begin(), distinct_.end());
  distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  for (const int64_t start : applied_steps) {
    const auto found = std::lower_bound(distinct_.begin(), distinct_.end(), start);
    of_parameter_.push_back(static_cast<int>(found - distinct_.begin()));
  }
}

int64_t MomentStarts::of(int parameter) const {
  return are_zero() ? 0 : distinct_[static_cast<size_t>(of_parameter_.at(static_cast<size_t>(parameter)))];
}

int MomentStarts::set_of(int parameter, int group, size_t num_groups) const {
  const int start = are_zero() ? 0 : of_parameter_.at(static_cast<size_t>(parameter));
  return start * static_cast<int>(num_groups) + group;
}

std::vector<SpanState> MomentStarts::cut(std::span<const SpanState> states, const FlatLayout& layout,
                                         size_t num_groups) const {
  DSL_CHECK(layout.groups != nullptr, "moments that began at different steps need the layout of the parameters");
  std::vector<SpanState> out;
  for (const auto& [span, arrays] : states) {
    const auto& group = layout.groups->at(static_cast<size_t>(span.flat_group));
    for (StateSpan part : plan_spans(group, span.flat_group, span.range, of_parameter_)) {
      const int64_t offset = part.range.begin - span.range.begin;
      part.optimizer_group = part.optimizer_group * static_cast<int>(num_groups) + span.optimizer_group;
      out.push_back({part, narrow(arrays, offset, part.numel())});
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::optim
