#include "runtime/model/placement/operator_rules.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using operators::OperatorTraits;

// Where tensors of these dims are aligned at the last one: the dim of the result.
int64_t aligned(int64_t dim, size_t dims, size_t dims_of_result) {
  return dim + static_cast<int64_t>(dims_of_result) - static_cast<int64_t>(dims);
}

bool is_number_or_scalar(const Operation& op, size_t input) {
  return !op.is_tensor(input) || (op.sizes(input).empty() && op.placement(input).is_whole());
}

// Sums commute with the operator: f(a) + f(b) = f(a + b).
bool keeps_sums(const Operation& op) {
  const std::string_view kind = op.kind();
  if (kind == "aten::neg") return true;
  if (kind == "aten::add" || kind == "aten::sub") {
    return op.is_tensor(1) && op.placement(0).is_partial() && op.placement(1).is_partial();
  }
  return (kind == "aten::mul" || kind == "aten::div") && op.placement(0).is_partial() && is_number_or_scalar(op, 1);
}

Outcome keep_partial(const Operation& op) {
  Outcome out = op.as_it_is();
  out.results[0] = {partial(op.origins())};
  return out;
}

// The sums would be reduced only to be cut again: what they are made of stays whole, or what is split.
[[noreturn]] void refuse_sums(const Operation& op) {
  Origins of, or_of;
  for (size_t i = 0; i < op.num_inputs(); ++i) {
    of = united(of, op.placement(i).origins);
    or_of = united(or_of, origins_of(op.placement(i).segments));
  }
  throw Refuse{of, "its result is a sum over the ranks that meets a value that is split", or_of};
}

Outcome elementwise(const Operation& op) {
  if (op.any_partial()) {
    if (op.any_sharded()) refuse_sums(op);
    return keeps_sums(op) ? keep_partial(op) : op.whole("");
  }
  const Sizes sizes = op.result_sizes();
  std::optional<int64_t> dim;
  Segments segments;
  int64_t groups = 1;
  for (size_t i = 0; i < op.num_inputs(); ++i) {
    const Placement& placement = op.placement(i);
    if (!placement.is_sharded()) continue;
    const int64_t at = aligned(placement.dim, op.sizes(i).size(), sizes.size());
    if (dim && (*dim != at || groups != placement.groups)) op.refuse("two operands are split in different dims");
    groups = placement.groups;
    segments = dim ? op.meet(segments, placement.segments) : placement.segments;
    dim = at;
  }
  Outcome out = op.as_it_is();
  for (size_t i = 0; i < op.num_inputs(); ++i) {
    if (!op.is_tensor(i)) continue;
    const Sizes own = op.sizes(i);
    const int64_t at = *dim - static_cast<int64_t>(sizes.size()) + static_cast<int64_t>(own.size());
    const bool has_dim = at >= 0 && own[static_cast<size_t>(at)] == sizes[static_cast<size_t>(*dim)];
    out.reads[i] = {has_dim ? sharded(at, segments, groups) : Placement()};
  }
  out.results[0] = {sharded(*dim, segments, groups)};
  return out;
}

// What is done with each element of the first operand, or with its type or its sizes; others tell no elements.
Outcome like_first(const Operation& op) {
  if (!op.placement(0).is_sharded() && !op.placement(0).is_partial()) return op.as_it_is();
  Outcome out = op.as_it_is();
  out.results[0] = {op.placement(0)};
  return out;
}

Outcome dropout(const Operation& op) {
  if (op.placement(0).is_partial()) return op.whole("");
  Outcome out = like_first(op);
  const c10::IValue* probability = op.known(1);
  out.draws = probability == nullptr || !probability->isDouble() || probability->toDouble() > 0;
  return out;
}

// A new tensor of the sizes of the first operand.
Outcome filled_like(const Operation& op) {
  if (op.placement(0).is_partial()) return op.as_it_is();
  return like_first(op);
}

Outcome list(const Operation& op) {
  Outcome out = op.as_it_is();
  for (size_t i = 0; i < op.num_inputs(); ++i) out.results[0].push_back(op.placement(i));
  return out;
}

Outcome unpacked_list(const Operation& op) {
  Outcome out = op.as_it_is();
  const Placements& elements = op.placements(0);
  for (size_t i = 0; i < out.results.size() && i < elements.size(); ++i) out.results[i] = {elements[i]};
  return out;
}

Outcome list_element(const Operation& op) {
  const Placements& elements = op.placements(0);
  const int64_t index = wrapped(op.number(1, -1), elements.size());
  if (op.known(1) == nullptr || index < 0 || index >= static_cast<int64_t>(elements.size())) {
    return op.whole("an element of a list is chosen when the model runs");
  }
  Outcome out = op.as_it_is();
  out.results[0] = {elements[static_cast<size_t>(index)]};
  return out;
}

Outcome size(const Operation& op) {
  Outcome out = op.as_it_is();
  const Placement& placement = op.placement(0);
  if (!placement.is_sharded()) return out;
  const Sizes sizes = op.sizes(0);
  if (op.num_inputs() > 1 && wrapped(op.number(1), sizes.size()) != placement.dim) return out;
  out.rewrite = Rewrite::kWholeSizes;
  out.groups = placement.groups;
  out.segments = placement.segments;
  out.whole_size = length_of(placement.segments);
  out.sharded_dim = placement.dim;
  return out;
}

bool is_any_of(std::string_view kind, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), kind) != names.end();
}

Rule rule_of_values(std::string_view kind) {
  if (kind == "prim::ListConstruct") return list;
  if (kind == "prim::ListUnpack" || kind == "prim::TupleUnpack") return unpacked_list;
  if (kind == "aten::__getitem__") return list_element;
  if (kind == "aten::size") return size;
  if (kind == "aten::dropout") return dropout;
  if (is_any_of(kind, {"aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::empty_like"})) {
    return filled_like;
  }
  if (is_any_of(kind, {"aten::contiguous", "aten::clone", "aten::to", "aten::type_as", "aten::detach", "aten::alias",
                       "dslaunch::match_type", "dslaunch::narrow_fp32", "prim::unchecked_cast"})) {
    return like_first;
  }
  if (is_any_of(kind, {"aten::dim", "aten::is_floating_point", "aten::is_complex", "prim::dtype", "prim::device",
                       "prim::layout", "prim::is_cuda", "aten::__is__", "aten::__isnot__"})) {
    return [](const Operation& op) { return op.as_it_is(); };
  }
  return nullptr;
}

// Whether the operator's rule treats dims that are several groups of the same segments.
bool takes_groups(const Operation& op) {
  const std::string_view kind = op.kind();
  return is_any_of(kind, {"prim::ListConstruct", "prim::ListUnpack", "aten::size",         "aten::dropout",
                          "aten::view",          "aten::reshape",    "aten::_unsafe_view", "aten::flatten",
                          "aten::unflatten",     "aten::reshape_as", "aten::view_as",      "aten::transpose",
                          "aten::permute",       "aten::unsqueeze",  "aten::repeat",       "aten::gather",
                          "aten::bmm",           "aten::matmul",     "aten::baddbmm",      "aten::softmax"}) ||
         rule_of_values(kind) == static_cast<Rule>(like_first) || operators::traits(op.node().kind()).elementwise;
}

Rule find_rule(const Operation& op) {
  const std::string_view kind = op.kind();
  const bool is_of_two = is_any_of(kind, {"aten::max", "aten::min"}) && op.num_inputs() == 2 && op.is_tensor(1);
  if (is_of_two) return elementwise;
  for (const auto find : {rule_of_values, movement_rule, gemm_rule, reduction_rule}) {
    if (const Rule rule = find(kind)) return rule;
  }
  if (operators::works_in_place(op.node().kind()) && op.placement(0).is_sharded()) {
    return operators::traits(kind.substr(0, kind.size() - 1)).elementwise ? elementwise : nullptr;
  }
  return operators::traits(op.node().kind()).elementwise ? elementwise : nullptr;
}

}  // namespace

Rule rule_among(std::string_view kind, std::span<const RuleRow> rows) {
  constexpr std::string_view kNamespace = "aten::";
  if (!kind.starts_with(kNamespace)) return nullptr;
  kind.remove_prefix(kNamespace.size());
  for (const auto& [names, rule] : rows) {
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      if (names.substr(begin, end - begin) == kind) return rule;
      begin = end + 1;
    }
  }
  return nullptr;
}

Outcome apply_rule(const Operation& op) {
  if (op.any_grouped() && !takes_groups(op)) {
    return op.whole(fmt::format("the operator {} does not work on a dim of samples and parts of it", op.kind()));
  }
  if (const Rule rule = find_rule(op)) return rule(op);
  return op.whole(fmt::format("the operator {} does not work on a part of it", op.kind()));
}

}  // namespace dslaunch::runtime::model::placement
