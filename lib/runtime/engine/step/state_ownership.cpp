#include "runtime/engine/step/state_ownership.hpp"

#include <algorithm>

namespace dslaunch::runtime::engine::step {

StateOwnership::StateOwnership(const ParameterTable& table, const TiedParameters& tied, const comm::Groups& groups)
    : own_(groups.own) {
  for (size_t i = 0; i < table.parameters.size(); ++i) {
    const auto& slice = table.parameters[i].slice;
    const bool is_first_copy = slice ? slice->copy == 0 : own_.tensor == 0;
    owns_shard_.push_back(is_first_copy && !tied.is_counted_elsewhere(static_cast<int>(i)));
  }
}

bool StateOwnership::owns_all_shards() const {
  return std::find(owns_shard_.begin(), owns_shard_.end(), false) == owns_shard_.end();
}

std::vector<Range> StateOwnership::owned_ranges(const FlatGroup& group, const StateSpan& span) const {
  std::vector<Range> out;
  for (const auto& piece : pieces_in(group, span.range)) {
    if (!owns_shard(piece.parameter)) continue;
    const int64_t begin = span.range.begin + piece.offset;
    if (!out.empty() && out.back().end == begin) {
      out.back().end = begin + piece.count;
    } else {
      out.push_back({begin, begin + piece.count});
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::step
