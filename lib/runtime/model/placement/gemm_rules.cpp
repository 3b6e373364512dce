#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

// aten::_grouped_mm refuses rows that are not multiples of 16 bytes, of which 16-bit types have the most elements.
constexpr int64_t kGroupedUnit = 8;

// The operand as the GEMM reads it: split along `dim`. A parameter is split for good.
Placement split_operand(const Operation& op, size_t input, int64_t dim, const Segments& segments) {
  const Placement& held = op.placement(input);
  const bool is_so = held.is_sharded() && held.dim == dim && lie_alike(held.segments, segments);
  if (!is_so) op.shard_parameter(input, dim, segments);
  if (held.is_sharded() && !is_so) op.refuse("two factors are split in ways that do not match");
  return sharded(dim, segments);
}

// Where both factors have the dim that is summed over.
Segments met(const Operation& op, const Placement& one, const Placement& other, int64_t dim_of_other) {
  const bool both = other.is_sharded() && other.dim == dim_of_other;
  return both && length_of(one.segments) == length_of(other.segments) ? op.meet(one.segments, other.segments)
                                                                      : one.segments;
}

[[noreturn]] void keep_weight_whole(const Operation& op, size_t weight) {
  throw Refuse{origins_of(op.placement(weight).segments), "its input is split in another dim than its features"};
}

bool adds_one_bias(const Operation& op, const GemmForm& form) {
  if (op.sizes(*form.bias).size() != 1) return false;
  for (const auto name : {"beta", "alpha"}) {
    const auto factor = op.argument(name);
    if (!factor) continue;
    const c10::IValue* known = op.known(*factor);
    if (known == nullptr || !known->isScalar() || !known->toScalar().equal(1)) return false;
  }
  return true;
}

class WeightGemm {
 public:
  WeightGemm(const Operation& op, const GemmForm& form)
      : op_(op),
        form_(form),
        has_bias_(form.bias && op.is_tensor(*form.bias)),
        last_(static_cast<int64_t>(op.sizes(form.factor).size()) - 1),
        out_(op.as_it_is()) {}

  Outcome run() {
    if (has_bias_ && !adds_one_bias(op_, form_)) return op_.whole("it adds more than a bias to its product");
    const Placement& factor = op_.placement(form_.factor);
    const Placement& weight = op_.placement(form_.weight);
    if (weight.is_partial()) return op_.whole("its weight is a sum over the ranks");
    if (op_.any_grouped() && factor.dim == last_) return op_.whole("its input is split in a dim of samples and parts");
    if (factor.is_sharded() && factor.dim == last_) return by_row(met(op_, factor, weight, form_.weight_in));
    if (factor.is_sharded()) return by_position(factor);
    if (weight.is_sharded() && weight.dim == form_.weight_out) return by_column(weight.segments);
    if (weight.is_sharded() && weight.dim == form_.weight_in) return by_row(weight.segments);
    if (weight.is_sharded()) op_.refuse("its weight is split in another dim than its features");
    if (factor.is_partial() && !has_bias_) return of_sum(factor);
    return op_.whole("its bias is split");
  }

 private:
  void read(size_t input, Placement placement) { out_.reads[input] = {std::move(placement)}; }
  Outcome result(Placement placement) {
    out_.results[0] = {std::move(placement)};
    return std::move(out_);
  }

  Outcome by_row(const Segments& split) {
    const Segments segments = in_units(split);
    read(form_.factor, sharded(last_, segments));
    read(form_.weight, split_operand(op_, form_.weight, form_.weight_in, segments));
    if (!has_bias_) return result(partial(origins_of(segments)));
    // Another use of the layer splits it.
    if (op_.placement(*form_.bias).is_sharded()) op_.refuse("its bias is split, and is added behind a sum");
    read(*form_.bias, {});
    out_.rewrite = Rewrite::kLateBias;
    return result({});
  }

  Outcome by_column(const Segments& split) {
    const Segments segments = in_units(split);
    read(form_.factor, {});
    if (has_bias_) read(*form_.bias, split_operand(op_, *form_.bias, 0, segments));
    return result(sharded(static_cast<int64_t>(op_.result_sizes().size()) - 1, segments));
  }

  Outcome by_position(const Placement& factor) {
    if (op_.placement(form_.weight).is_sharded()) keep_weight_whole(op_, form_.weight);
    if (op_.sizes(form_.weight).size() != 2) return op_.whole("its rows belong to several weights");
    if (has_bias_) read(*form_.bias, {});
    return result(factor);
  }

  Outcome of_sum(const Placement& factor) { return result(factor); }

  Segments in_units(const Segments& segments) const {
    return form_.unit == 1 ? segments : op_.in_units(segments, form_.unit);
  }

  const Operation& op_;
  const GemmForm& form_;
  const bool has_bias_;
  const int64_t last_;
  Outcome out_;
};

Outcome gemm_with_weight(const Operation& op) {
  const auto form = gemm_form(op);
  return form ? WeightGemm(op, *form).run() : op.whole("its factors are vectors");
}

// Of two values, or of batches of matrices. The factors are inputs `one` and `one + 1`, and with `added` input 0 is
// added.
class MatrixGemm {
 public:
  MatrixGemm(const Operation& op, size_t one, bool added)
      : op_(op),
        one_(one),
        other_(one + 1),
        added_(added),
        a_(op.sizes(one)),
        b_(op.sizes(one + 1)),
        out_(op.as_it_is()) {}

  Outcome run() {
    if (op_.any_partial()) return op_.whole("a factor is split and the other is a sum over the ranks");
    if (a_.size() < 2 || b_.size() < 2) return op_.whole("a factor is a vector");
    const Placement& a = op_.placement(one_);
    const Placement& b = op_.placement(other_);
    if (a.is_sharded() && a.dim == columns(a_)) return summed(met(op_, a, b, rows(b_)));
    if (b.is_sharded() && b.dim == rows(b_) && !a.is_sharded()) return summed(b.segments);
    if (a.is_sharded() && a.dim == rows(a_)) return kept(b, one_, other_, rows(result_sizes()));
    if (b.is_sharded() && b.dim == columns(b_)) return kept(a, other_, one_, columns(result_sizes()));
    return a.is_sharded() || b.is_sharded() ? by_batch(a, b) : op_.whole("what is added is split");
  }

 private:
  static int64_t rows(const Sizes& sizes) { return static_cast<int64_t>(sizes.size()) - 2; }
  static int64_t columns(const Sizes& sizes) { return static_cast<int64_t>(sizes.size()) - 1; }
  Sizes result_sizes() const { return op_.result_sizes(); }
  void refuse_groups() const {
    if (op_.any_grouped()) op_.refuse("a factor is split in a dim of samples and parts of it");
  }

  Outcome summed(const Segments& segments) {
    refuse_groups();
    if (added_) op_.refuse("something is added to a product that is a sum over the ranks");
    out_.reads[one_] = {split_operand(op_, one_, columns(a_), segments)};
    out_.reads[other_] = {split_operand(op_, other_, rows(b_), segments)};
    out_.results[0] = {partial(origins_of(segments))};
    return std::move(out_);
  }

  // Rows of the first factor or columns of the second.
  Outcome kept(const Placement& beside, size_t split, size_t whole, int64_t dim) {
    refuse_groups();
    if (beside.is_sharded()) op_.refuse("two factors are split in ways that do not match");
    out_.reads[whole] = {Placement()};
    return with_added(sharded(dim, op_.placement(split).segments));
  }

  Outcome by_batch(const Placement& a, const Placement& b) {
    const auto at = [&](int64_t dim, const Sizes& sizes) {
      return dim + static_cast<int64_t>(result_sizes().size()) - static_cast<int64_t>(sizes.size());
    };
    const int64_t dim = a.is_sharded() ? at(a.dim, a_) : at(b.dim, b_);
    Segments segments = a.is_sharded() ? a.segments : b.segments;
    const int64_t groups = a.is_sharded() ? a.groups : b.groups;
    if (a.is_sharded() && b.is_sharded()) {
      if (at(b.dim, b_) != dim || a.groups != b.groups) op_.refuse("two factors are split in ways that do not match");
      segments = op_.meet(a.segments, b.segments);
    }
    out_.reads[one_] = {batch_operand(a_, dim, segments, groups)};
    out_.reads[other_] = {batch_operand(b_, dim, segments, groups)};
    return with_added(sharded(dim, segments, groups));
  }

  Placement batch_operand(const Sizes& sizes, int64_t dim, const Segments& segments, int64_t groups) const {
    const int64_t own = dim - static_cast<int64_t>(result_sizes().size()) + static_cast<int64_t>(sizes.size());
    const bool has_dim = own >= 0 && sizes[static_cast<size_t>(own)] == length_of(segments) * groups;
    return has_dim ? sharded(own, segments, groups) : Placement();
  }

  Outcome with_added(Placement placement) {
    if (added_) {
      const Placement read = batch_operand(op_.sizes(0), placement.dim, placement.segments, placement.groups);
      const Placement& held = op_.placement(0);
      if (held.is_sharded() && !(read.is_sharded() && held.dim == read.dim && held.groups == read.groups)) {
        op_.refuse("what is added is split in another dim");
      }
      out_.reads[0] = {read};
    }
    out_.results[0] = {std::move(placement)};
    return std::move(out_);
  }

  const Operation& op_;
  const size_t one_, other_;
  const bool added_;
  const Sizes a_, b_;
  Outcome out_;
};

Outcome matmul(const Operation& op) {
  return op.parameter(1) != nullptr && op.sizes(1).size() == 2 ? gemm_with_weight(op)
                                                               : MatrixGemm(op, 0, /*added=*/false).run();
}
Outcome batched(const Operation& op) {
  return MatrixGemm(op, 0, /*added=*/false).run();
}
Outcome batched_and_added(const Operation& op) {
  return MatrixGemm(op, 1, /*added=*/true).run();
}

// scaled_dot_GEMM_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa).
class Attention {
 public:
  explicit Attention(const Operation& op) : op_(op), query_(op.sizes(0)), out_(op.as_it_is()) {}

  Outcome run() {
    if (op_.any_partial()) return op_.whole("an operand is a sum over the ranks");
    for (size_t i = 0; i < 3; ++i) require_heads(i);
    const auto heads = head_segments();
    if (!heads) return op_.whole("its mask is split");
    const int64_t head = head_dim(query_);
    out_.reads[0] = {sharded(head, *heads)};
    for (const size_t i : {1, 2}) out_.reads[i] = {keys_of(i, *heads)};
    if (op_.is_tensor(3)) out_.reads[3] = {mask_of(*heads)};
    out_.results[0] = {sharded(head, *heads)};
    const c10::IValue* probability = op_.num_inputs() > 4 ? op_.known(4) : nullptr;
    out_.draws = probability != nullptr && !(probability->isDouble() && probability->toDouble() == 0);
    return std::move(out_);
  }

 private:
  static int64_t head_dim(const Sizes& sizes) { return static_cast<int64_t>(sizes.size()) - 3; }
  int64_t num_heads(size_t input) const { return op_.sizes(input).at(static_cast<size_t>(head_dim(op_.sizes(input)))); }

  void require_heads(size_t input) const {
    const Placement& placement = op_.placement(input);
    if (!placement.is_sharded()) return;
    const Origins own = origins_of(placement.segments);
    if (placement.dim != head_dim(op_.sizes(input))) {
      const bool is_inside_head = placement.dim == head_dim(op_.sizes(input)) + 2;
      throw Refuse{own, is_inside_head ? "it has fewer heads than there are tensor ranks"
                                       : "attention goes along the dim that would be split"};
    }
    if (placement.segments.size() != 1) throw Refuse{own, "its heads are in several parts"};
  }

  // Of the query's heads; those that share a key stay together where keys are split.
  std::optional<Segments> head_segments() const {
    std::optional<Segment> out;
    for (size_t i = 0; i < 3; ++i) {
      if (!op_.placement(i).is_sharded()) continue;
      Segment own = op_.placement(i).segments[0];
      own.width = own.width * num_heads(0) / num_heads(i);
      out = out ? op_.meet({*out}, {own})[0] : own;
    }
    return out ? std::optional(Segments{*out}) : std::nullopt;
  }

  Placement keys_of(size_t input, const Segments& heads) const {
    const Sizes sizes = op_.sizes(input);
    const int64_t keys = num_heads(input), items = heads[0].items;
    if (keys % items == 0) return sharded(head_dim(sizes), {{items, keys / items, heads[0].origins}});
    return shared(head_dim(sizes), layout_of_shared(heads, num_heads(0) / keys));
  }

  // Several ranks need the same keys: each its query heads' own, one for each head unless they form equal groups.
  Layout layout_of_shared(const Segments& heads, int64_t heads_of_key) const {
    Layout out;
    for (int rank = 0; rank < op_.ranks(); ++rank) {
      auto& ranges = out.emplace_back();
      for (const Range& own : ranges_of(heads, op_.ranks(), rank)) {
        const int64_t first = own.begin / heads_of_key, last = (own.end - 1) / heads_of_key;
        if (first == last) {
          ranges.push_back({first, first + 1});
          continue;
        }
        for (int64_t i = own.begin; i < own.end; ++i) ranges.push_back({i / heads_of_key, i / heads_of_key + 1});
      }
    }
    return out;
  }

  Placement mask_of(const Segments& heads) const {
    const Sizes sizes = op_.sizes(3);
    const int64_t own = head_dim(sizes);
    const bool has_heads = own >= 0 && sizes[static_cast<size_t>(own)] == num_heads(0) && num_heads(0) > 1;
    const Placement& held = op_.placement(3);
    if (!has_heads) {
      if (held.is_sharded()) op_.refuse("its mask is split in another dim than the heads");
      return {};
    }
    if (!held.is_sharded()) return sharded(own, heads);
    if (held.dim != own) op_.refuse("its mask is split in another dim than the heads");
    return sharded(own, op_.meet(heads, held.segments));
  }

  const Operation& op_;
  const Sizes query_;
  Outcome out_;
};

Outcome attention(const Operation& op) {
  return Attention(op).run();
}

constexpr RuleRow kRows[] = {
    {"linear addmm mm _grouped_mm", gemm_with_weight},
    {"matmul", matmul},
    {"bmm", batched},
    {"baddbmm", batched_and_added},
    {"scaled_dot_product_attention", attention},
};

}  // namespace

std::optional<GemmForm> gemm_form(const Operation& op) {
  const std::string_view kind = op.kind();
  if (kind == "aten::_grouped_mm") {
    if (op.sizes(1).size() != 3 || op.is_tensor(3)) return std::nullopt;
    return GemmForm{.weight_in = 1, .weight_out = 2, .unit = kGroupedUnit};
  }
  if (kind == "dslaunch::chunked_cross_entropy") {
    const bool is_out_in = op.is_true(3);
    return GemmForm{.bias = 2, .weight_in = is_out_in ? 1 : 0, .weight_out = is_out_in ? 0 : 1};
  }
  GemmForm form;
  const auto inputs = operators::traits(op.node().kind()).gemm;
  if (inputs.factor >= 0) {
    form.factor = static_cast<size_t>(inputs.factor);
    form.weight = static_cast<size_t>(inputs.weight);
    if (inputs.bias >= 0) form.bias = static_cast<size_t>(inputs.bias);
  } else if (kind != "aten::mm") {
    return std::nullopt;
  }
  if (form.weight >= op.num_inputs() || op.sizes(form.weight).size() != 2 || op.sizes(form.factor).empty()) {
    return std::nullopt;
  }
  if (kind.ends_with("linear")) std::swap(form.weight_in, form.weight_out);
  return form;
}

Rule gemm_rule(std::string_view kind) {
  if (kind == "dslaunch::linear" || kind == "dslaunch::addmm" || kind == "dslaunch::matmul") return gemm_with_weight;
  return rule_among(kind, kRows);
}

}  // namespace dslaunch::runtime::model::placement
