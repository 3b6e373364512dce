#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

int64_t product(const Sizes& sizes, size_t begin, size_t end) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(begin),
                         sizes.begin() + static_cast<std::ptrdiff_t>(end), int64_t{1}, std::multiplies<>());
}

// The operand's placement continues in the result. `dim`: where it lies then.
Outcome moved(const Operation& op, int64_t dim, Segments segments, int64_t groups = 1) {
  Outcome out = op.as_it_is();
  out.results[0] = {sharded(dim, std::move(segments), groups)};
  return out;
}

// Sums commute with whatever only moves elements.
std::optional<Outcome> moved_sum(const Operation& op) {
  if (!op.placement(0).is_partial()) return std::nullopt;
  Outcome out = op.as_it_is();
  out.results[0] = {op.placement(0)};
  return out;
}

// Dims [begin, end) of the operand that become dims [begin, end) of the result.
struct Regrouped {
  size_t in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
};

// The smallest group around a dim.
Regrouped group_around(size_t dim, const Sizes& in, const Sizes& out) {
  Regrouped group;
  while (group.in_end < in.size()) {
    group = {group.in_end, group.in_end + 1, group.out_end, group.out_end};
    int64_t left = in[group.in_begin], right = 1;
    if (group.out_end < out.size()) right = out[group.out_end++];
    while (left != right) {
      if (left < right && group.in_end < in.size()) {
        left *= in[group.in_end++];
      } else if (right < left && group.out_end < out.size()) {
        right *= out[group.out_end++];
      } else {
        break;
      }
    }
    if (group.in_end > dim) break;
  }
  return group;
}

// Of `count` equal groups of segments one, with the origins of all; empty: they are not equal.
Segments one_of_equal(const Segments& segments, int64_t count) {
  if (count == 1) return segments;
  const auto each = segments.size() / static_cast<size_t>(count);
  if (each == 0 || segments.size() % static_cast<size_t>(count) != 0) return {};
  Segments out(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(each));
  for (size_t i = each; i < segments.size(); ++i) {
    Segment& first = out[i % each];
    if (!first.lies_like(segments[i])) return {};
    first.origins = united(first.origins, segments[i].origins);
  }
  return out;
}

bool fits(const Segments& segments, int64_t inner, int64_t size, int ranks) {
  return !segments.empty() && length_of(segments) == size * inner &&
         std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
           return segment.length() % inner == 0 && std::gcd(segment.items, segment.length() / inner) >= ranks;
         });
}

Segments with_widths(Segments segments, int64_t times, int64_t divided_by) {
  for (Segment& segment : segments) segment.width = segment.width * times / divided_by;
  return segments;
}

// `sizes_input`: that of the new sizes, if there is one.
Outcome regroup(const Operation& op, std::optional<size_t> sizes_input, size_t first_given_dim = 0) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const Sizes in = op.sizes(0), out = op.result_sizes();
  const auto dim = static_cast<size_t>(placement.dim);
  const auto [in_begin, in_end, out_begin, out_end] = group_around(dim, in, out);
  const int64_t before = product(in, in_begin, dim) * placement.groups, after = product(in, dim + 1, in_end);
  const Segments flat = with_widths(placement.segments, after, 1);
  for (size_t at = out_begin; at < out_end; ++at) {
    const int64_t outer = product(out, out_begin, at), inner = product(out, at + 1, out_end);
    if (out[at] == 1 || (before % outer != 0 && outer % before != 0)) continue;
    const int64_t groups = std::max<int64_t>(before / outer, 1), parts = std::max<int64_t>(outer / before, 1);
    const Segments segments = one_of_equal(flat, parts);
    if (flat.size() == 1 && parts > 1 && out[at] >= op.ranks()) {
      throw Divide{flat[0].origins, std::vector<int64_t>(static_cast<size_t>(parts), 1)};  // q, k and v as a dim
    }
    if (out[at] % groups != 0 || !fits(segments, inner, out[at] / groups, op.ranks())) continue;
    op.in_units(segments, inner);
    Segments local = with_widths(segments, 1, inner);
    Outcome result = moved(op, static_cast<int64_t>(at), local, groups);
    if (sizes_input && at >= first_given_dim) {
      const size_t position = at - first_given_dim;
      const auto given = op.numbers(*sizes_input);
      if (position < given.size() && given[position] != -1) {
        result.edits.push_back(op.local_number(*sizes_input, position, local, groups));
      }
    }
    return result;
  }
  op.refuse(fmt::format("a view of shape [{}] has fewer parts that stay whole than there are tensor ranks",
                        fmt::join(out, ", ")));
}

Outcome view(const Operation& op) {
  const c10::IValue* sizes = op.known(1);
  if (sizes == nullptr || !sizes->isIntList()) return op.whole("it is viewed as another type");
  return regroup(op, 1);
}

Outcome flatten(const Operation& op) {
  return regroup(op, std::nullopt);
}

Outcome unflatten(const Operation& op) {
  return regroup(op, 2, static_cast<size_t>(wrapped(op.number(1), op.sizes(0).size())));
}

// Like another value, which is split in the same way.
Outcome reshape_as(const Operation& op) {
  const Placement& like = op.placement(1);
  if (op.placement(0).is_sharded() != like.is_sharded())
    op.refuse("of a value and what it is reshaped like one is split");
  if (auto sum = moved_sum(op)) return *std::move(sum);
  if (!like.is_sharded()) return op.whole("");
  Outcome out = regroup(op, std::nullopt);
  Placement& made = out.results[0][0];
  if (made.dim != like.dim || made.groups != like.groups)
    op.refuse("it is reshaped like a value that is split elsewhere");
  made.segments = op.meet(made.segments, like.segments);
  return out;
}

// `order`: by dim of the result that of the operand.
Outcome reorder(const Operation& op, const std::vector<int64_t>& order) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const auto found = std::find(order.begin(), order.end(), placement.dim);
  return moved(op, found - order.begin(), placement.segments, placement.groups);
}

std::vector<int64_t> plain_order(size_t dims) {
  std::vector<int64_t> out(dims);
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

Outcome transpose(const Operation& op) {
  const size_t dims = op.sizes(0).size();
  auto order = plain_order(dims);
  std::swap(order[static_cast<size_t>(wrapped(op.number(1), dims))],
            order[static_cast<size_t>(wrapped(op.number(2), dims))]);
  return reorder(op, order);
}

Outcome matrix_transpose(const Operation& op) {
  auto order = plain_order(op.sizes(0).size());
  std::reverse(order.begin(), order.end());
  return reorder(op, order);
}

Outcome permute(const Operation& op) {
  auto order = op.numbers(1);
  for (int64_t& dim : order) dim = wrapped(dim, order.size());
  return reorder(op, order);
}

Outcome unsqueeze(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const int64_t at = wrapped(op.number(1), op.sizes(0).size() + 1);
  return moved(op, placement.dim + (at <= placement.dim ? 1 : 0), placement.segments, placement.groups);
}

Outcome squeeze(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const Sizes sizes = op.sizes(0);
  const int64_t at = wrapped(op.number(1), sizes.size());
  if (op.num_inputs() < 2 || op.result_sizes().size() + 1 != sizes.size()) {
    return op.result_sizes().size() == sizes.size() ? moved(op, placement.dim, placement.segments)
                                                    : op.whole("all dims of size 1 are removed");
  }
  return moved(op, placement.dim - (at < placement.dim ? 1 : 0), placement.segments);
}

Outcome expand(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const int64_t at =
      placement.dim + static_cast<int64_t>(op.result_sizes().size()) - static_cast<int64_t>(op.sizes(0).size());
  Outcome out = moved(op, at, placement.segments);
  if (op.numbers(1).at(static_cast<size_t>(at)) != -1) {
    out.edits.push_back(op.local_number(1, static_cast<size_t>(at), placement.segments));
  }
  return out;
}

Outcome repeat(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const int64_t at =
      placement.dim + static_cast<int64_t>(op.result_sizes().size()) - static_cast<int64_t>(op.sizes(0).size());
  return moved(op, at, placement.segments, placement.groups * op.numbers(1).at(static_cast<size_t>(at)));
}

Outcome repeat_interleave(const Operation& op) {
  if (op.placement(0).is_partial() || op.is_tensor(1) || op.number(2, -1) == -1) {
    return op.whole("it is repeated by a number for each element");
  }
  const Placement& placement = op.placement(0);
  const bool is_along = wrapped(op.number(2), op.sizes(0).size()) == placement.dim;
  return moved(op, placement.dim, with_widths(placement.segments, is_along ? op.number(1) : 1, 1));
}

// index(x, indices): indices of one dim, which is not the split one.
Outcome index(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const c10::IValue* indices = op.known(1);
  const Placement& placement = op.placement(0);
  if (!placement.is_sharded() || indices == nullptr) return op.whole("it is indexed by a value that is split");
  std::optional<int64_t> dim, dims;
  int64_t at = 0;
  for (const c10::IValue& element : indices->toListRef()) {
    if (element.isTensor() && element.toTensor().defined()) {
      if (dim || element.toTensor().scalar_type() != at::kLong) op.refuse("its elements are read one by one");
      dim = at;
      dims = element.toTensor().dim();
    }
    ++at;
  }
  if (!dim || *dim == placement.dim) op.refuse("single indices of the dim that would be split are read");
  return moved(op, placement.dim + (*dim < placement.dim ? *dims - 1 : 0), placement.segments);
}

// gather(x, dim, indices): of each row its own.
Outcome gather_elements(const Operation& op) {
  const Placement& from = op.placement(0);
  const Placement& indices = op.placement(2);
  if (op.any_partial()) return op.whole("an operand of it is a sum over the ranks");
  const Placement& one = from.is_sharded() ? from : indices;
  if (wrapped(op.number(1), op.sizes(0).size()) == one.dim)
    op.refuse("elements along the dim that would be split are read");
  const auto dim = static_cast<size_t>(one.dim);
  if (op.sizes(0)[dim] != op.sizes(2)[dim]) op.refuse("elements of a part of its rows are read");
  Segments segments = one.segments;
  if (from.is_sharded() && indices.is_sharded()) {
    if (from.dim != indices.dim || from.groups != indices.groups) op.refuse("two operands are split in different dims");
    segments = op.meet(from.segments, indices.segments);
  }
  Outcome out = moved(op, one.dim, segments, one.groups);
  out.reads[0] = out.reads[2] = out.results[0];
  return out;
}

// Consecutive parts of a dim, one for each element of the list.
Outcome split(const Operation& op) {
  const Placement& placement = op.placement(0);
  const auto parts = op.result_list_sizes();
  Outcome out = op.as_it_is();
  if (placement.is_partial()) {
    out.results[0].assign(parts.size(), placement);
    return out;
  }
  const auto dim = static_cast<size_t>(wrapped(op.number(2), op.sizes(0).size()));
  if (static_cast<int64_t>(dim) != placement.dim) {
    out.results[0].assign(parts.size(), placement);
    return out;
  }
  std::vector<int64_t> ends;
  for (const Sizes& sizes : parts) ends.push_back((ends.empty() ? 0 : ends.back()) + sizes.at(dim));
  op.cut_at(placement.segments, ends);
  int64_t begin = 0;
  out.rewrite = Rewrite::kUnequalPieces;
  out.sharded_dim = placement.dim;
  out.pieces.resize(static_cast<size_t>(op.ranks()));
  for (const int64_t end : ends) {
    const Segments segments = segments_within(placement.segments, begin, end);
    out.results[0].push_back(sharded(placement.dim, segments));
    for (int rank = 0; rank < op.ranks(); ++rank) {
      out.pieces[static_cast<size_t>(rank)].push_back(local_length(segments, op.ranks(), rank));
    }
    begin = end;
  }
  return out;
}

// Each index of a dim for itself: the dim that is split must be another one.
[[noreturn]] void split_inside(const Operation& op, const Placement& placement) {
  const int64_t count = op.sizes(0).at(static_cast<size_t>(placement.dim));
  if (placement.segments.size() != 1) op.refuse("single indices of the dim that would be split are read");
  throw Divide{placement.segments[0].origins, std::vector<int64_t>(static_cast<size_t>(count), 1)};
}

Outcome unbind(const Operation& op) {
  const Placement& placement = op.placement(0);
  const int64_t dim = wrapped(op.number(1), op.sizes(0).size());
  Outcome out = op.as_it_is();
  Placement each = placement;
  if (placement.is_sharded()) {
    if (dim == placement.dim) split_inside(op, placement);
    each.dim -= dim < placement.dim ? 1 : 0;
  }
  out.results[0].assign(op.result_list_sizes().size(), each);
  return out;
}

Outcome select(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const int64_t dim = wrapped(op.number(1), op.sizes(0).size());
  if (dim == placement.dim) split_inside(op, placement);
  return moved(op, placement.dim - (dim < placement.dim ? 1 : 0), placement.segments);
}

// [begin, end) of the sharded dim; edits the numbers that are not at its ends.
Outcome part(const Operation& op, int64_t begin, int64_t end, bool is_length) {
  const Placement& placement = op.placement(0);
  const int64_t size = length_of(placement.segments);
  if (begin == 0 && end == size && !is_length) return moved(op, placement.dim, placement.segments);
  op.cut_at(placement.segments, {begin, end});
  const Segments before = segments_within(placement.segments, 0, begin);
  const Segments inside = segments_within(placement.segments, begin, end);
  Outcome out = moved(op, placement.dim, inside);
  if (begin != 0) out.edits.push_back(op.local_number(2, {}, before));
  if (is_length || end != size) {
    Segments until = before;
    until.insert(until.end(), inside.begin(), inside.end());
    out.edits.push_back(op.local_number(3, {}, is_length ? inside : until));
  }
  return out;
}

Outcome slice(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  const size_t dims = op.sizes(0).size();
  if (wrapped(op.number(1), dims) != placement.dim) return moved(op, placement.dim, placement.segments);
  if (op.number(4, 1) != 1) op.refuse("every other index of the dim that would be split is read");
  const int64_t size = length_of(placement.segments);
  const auto clamped = [size](int64_t index) { return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size); };
  return part(op, clamped(op.number(2, 0)), clamped(op.number(3, size)), /*is_length=*/false);
}

Outcome narrow(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  if (wrapped(op.number(1), op.sizes(0).size()) != placement.dim) return moved(op, placement.dim, placement.segments);
  const int64_t begin = wrapped(op.number(2), static_cast<size_t>(length_of(placement.segments)));
  return part(op, begin, begin + op.number(3), /*is_length=*/true);
}

// The lists of tensors of cat and stack: all alike, or all along the dim of cat.
Outcome join(const Operation& op, bool makes_dim) {
  const Placements& elements = op.placements(0);
  if (std::any_of(elements.begin(), elements.end(), [](const auto& one) { return one.is_partial(); })) {
    const bool all = std::all_of(elements.begin(), elements.end(), [](const auto& one) { return one.is_partial(); });
    if (!all) return op.whole("a sum over the ranks is joined with a value that is split");
    Outcome out = op.as_it_is();
    out.results[0] = {partial(op.origins())};
    return out;
  }
  const auto sizes = op.list_sizes(0);
  const auto first = std::find_if(elements.begin(), elements.end(), [](const auto& one) { return one.is_sharded(); });
  const int64_t dim = first->dim;
  const int64_t along = wrapped(op.number(1), sizes[0].size() + (makes_dim ? 1 : 0));
  Segments segments;
  const bool joins_it = !makes_dim && along == dim;
  for (const Placement& element : elements) {
    if (element.is_sharded() && element.dim != dim) op.refuse("values that are split in different dims are joined");
    if (joins_it && !element.is_sharded()) op.refuse("a whole value is joined with one that is split");
    if (joins_it) {
      segments.insert(segments.end(), element.segments.begin(), element.segments.end());
    } else if (element.is_sharded()) {
      segments = segments.empty() ? element.segments : op.meet(segments, element.segments);
    }
  }
  Outcome out = op.as_it_is();
  if (!joins_it) out.reads[0].assign(elements.size(), sharded(dim, segments));
  out.results[0] = {sharded(dim + (makes_dim && along <= dim ? 1 : 0), segments)};
  return out;
}

Outcome cat(const Operation& op) {
  return join(op, /*makes_dim=*/false);
}
Outcome stack(const Operation& op) {
  return join(op, /*makes_dim=*/true);
}

// Works on the matrices of the last two dims, or on each of them alike.
Outcome of_matrices(const Operation& op) {
  if (auto sum = moved_sum(op)) return *std::move(sum);
  const Placement& placement = op.placement(0);
  if (placement.dim + 2 >= static_cast<int64_t>(op.sizes(0).size())) op.refuse("a triangle of it is read");
  return moved(op, placement.dim, placement.segments);
}

constexpr RuleRow kRows[] = {
    {"view reshape _unsafe_view", view},
    {"flatten", flatten},
    {"reshape_as view_as", reshape_as},
    {"index", index},
    {"gather", gather_elements},
    {"unflatten", unflatten},
    {"transpose swapaxes swapdims", transpose},
    {"t numpy_T", matrix_transpose},
    {"permute", permute},
    {"unsqueeze", unsqueeze},
    {"squeeze", squeeze},
    {"expand broadcast_to", expand},
    {"repeat", repeat},
    {"repeat_interleave", repeat_interleave},
    {"split split_with_sizes chunk", split},
    {"unbind", unbind},
    {"select", select},
    {"slice", slice},
    {"narrow", narrow},
    {"cat concat", cat},
    {"stack", stack},
    {"tril triu", of_matrices},
};

}  // namespace

Rule movement_rule(std::string_view kind) {
  return rule_among(kind, kRows);
}

}  // namespace dslaunch::runtime::model::placement
