#include "runtime/state/state_span.hpp"

namespace dslaunch::runtime {

std::vector<StateSpan> plan_spans(const FlatGroup& group, int flat_group, Range range,
                                  const std::vector<int>& optimizer_group_of) {
  const auto group_of = [&](int parameter) {
    return optimizer_group_of.empty() ? 0 : optimizer_group_of.at(static_cast<size_t>(parameter));
  };
  std::vector<StateSpan> spans;
  int64_t begin = range.begin;
  int current = group.segments.empty() ? 0 : group_of(group.segments.back().parameter);
  const auto pieces = pieces_in(group, range);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int of_piece = group_of(pieces[i].parameter);
    if (i > 0 && of_piece != current) {
      const int64_t end = range.begin + pieces[i].offset;
      spans.push_back({flat_group, current, {begin, end}});
      begin = end;
    }
    current = of_piece;
  }
  spans.push_back({flat_group, current, {begin, range.end}});
  return spans;
}

}  // namespace dslaunch::runtime
