#include "runtime/model/placement/placement.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dslaunch::runtime::model::placement {
namespace {

constexpr int64_t kPreferredWidth = 8;  // of items that are cut freely, for GEMMs of an even size

// The items of one rank.
Range items_of(int64_t items, int ranks, int rank) {
  const int64_t each = items / ranks, more = items % ranks;
  const int64_t begin = each * rank + std::min<int64_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

}  // namespace

Origins united(const Origins& one, const Origins& other) {
  Origins out;
  std::set_union(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(out));
  return out;
}

bool meets(const Origins& one, const Origins& other) {
  return std::any_of(one.begin(), one.end(),
                     [&](const Origin& origin) { return std::binary_search(other.begin(), other.end(), origin); });
}

int64_t length_of(const Segments& segments) {
  int64_t out = 0;
  for (const Segment& segment : segments) out += segment.length();
  return out;
}

Origins origins_of(const Segments& segments) {
  Origins out;
  for (const Segment& segment : segments) out = united(out, segment.origins);
  return out;
}

Origins origins_of(const Placement& placement) {
  return united(placement.origins, origins_of(placement.segments));
}

bool lie_alike(const Segments& one, const Segments& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const Segment& a, const Segment& b) { return a.lies_like(b); });
}

Placement sharded(int64_t dim, Segments segments, int64_t groups) {
  return {Kind::kSharded, dim, std::move(segments), groups, {}, {}};
}

Placement partial(Origins origins) {
  return {Kind::kPartial, 0, {}, 1, {}, std::move(origins)};
}

Placement shared(int64_t dim, Layout layout) {
  return {Kind::kSharded, dim, {}, 1, std::move(layout), {}};
}

Placement of_positions(int64_t dim, int64_t size, size_t length) {
  return sharded(dim, {{size, 1, {{kPositions, length}}}});
}

bool are_positions(const Segments& segments) {
  // Numbers of parameters are not negative, so the first origin tells.
  return std::any_of(segments.begin(), segments.end(), [](const Segment& segment) {
    return !segment.origins.empty() && segment.origins.front().parameter == kPositions;
  });
}

bool Placement::is_of_positions() const {
  return is_sharded() && are_positions(segments);
}

size_t length_of_positions(const Placement& placement) {
  return placement.segments.at(0).origins.at(0).segment;
}

std::vector<Range> ranges_of(const Segments& segments, int ranks, int rank) {
  std::vector<Range> out;
  int64_t offset = 0;
  for (const Segment& segment : segments) {
    const Range items = items_of(segment.items, ranks, rank);
    const Range range{offset + items.begin * segment.width, offset + items.end * segment.width};
    if (range.size() > 0) out.push_back(range);
    offset += segment.length();
  }
  return out;
}

Layout layout_of(const Segments& segments, int ranks) {
  Layout out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(ranges_of(segments, ranks, rank));
  return out;
}

int64_t local_length(const Segments& segments, int ranks, int rank) {
  int64_t out = 0;
  for (const Range& range : ranges_of(segments, ranks, rank)) out += range.size();
  return out;
}

LocalSlice slice_of(const Placement& placement, int ranks, int rank) {
  LocalSlice out{.dim = placement.dim, .whole = length_of(placement.segments), .ranges = {}};
  for (const Range& range : ranges_of(placement.segments, ranks, rank)) {
    if (!out.ranges.empty() && out.ranges.back().end == range.begin) {
      out.ranges.back().end = range.end;
    } else {
      out.ranges.push_back(range);
    }
  }
  return out;
}

Segment segment_of_length(int64_t length, int ranks) {
  const bool is_even = length % ranks == 0;
  const bool has_preferred = length % kPreferredWidth == 0 && length / kPreferredWidth >= ranks;
  if (!is_even && has_preferred) return {length / kPreferredWidth, kPreferredWidth, {}};
  return {length, 1, {}};
}

}  // namespace dslaunch::runtime::model::placement
