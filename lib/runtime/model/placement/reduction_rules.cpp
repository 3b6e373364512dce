#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

bool has(const std::vector<int64_t>& dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// The dims that the operator goes along; without a list of them it is all.
std::vector<int64_t> dims_of(const Operation& op) {
  const size_t count = op.sizes(0).size();
  const auto argument = op.argument("dim");
  std::vector<int64_t> out = argument ? op.numbers(*argument) : std::vector<int64_t>{};
  for (int64_t& dim : out) dim = wrapped(dim, count);
  if (out.empty()) {
    for (size_t i = 0; i < count; ++i) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// Sums over the split dim are sums over the ranks; so are means, each part times its share of the dim.
Outcome sum_of_parts(const Operation& op) {
  const Placement& placement = op.placement(0);
  Outcome out = op.as_it_is();
  out.results[0] = {partial(origins_of(placement.segments))};
  if (op.kind() == "aten::sum") return out;
  out.rewrite = Rewrite::kScaled;
  const auto whole = static_cast<double>(length_of(placement.segments));
  for (int rank = 0; rank < op.ranks(); ++rank) {
    out.scale_by_rank.push_back(static_cast<double>(local_length(placement.segments, op.ranks(), rank)) / whole);
  }
  return out;
}

// Reductions and whatever else goes along some dims and treats the others alike.
Outcome along_dims(const Operation& op) {
  if (op.placement(0).is_partial() || !op.placement(0).is_sharded()) return op.whole("an operand of it is split");
  const Placement& placement = op.placement(0);
  const auto dims = dims_of(op);
  if (has(dims, placement.dim)) {
    if (op.kind() == "aten::sum" || op.kind() == "aten::mean") return sum_of_parts(op);
    op.refuse(fmt::format("{} goes along the dim that would be split", op.kind()));
  }
  Outcome out = op.as_it_is();
  for (size_t i = 0; i < out.results.size(); ++i) {
    const bool loses_dims = op.result_sizes(i).size() < op.sizes(0).size();
    int64_t before = 0;
    for (const int64_t dim : dims) before += loses_dims && dim < placement.dim ? 1 : 0;
    out.results[i] = {sharded(placement.dim - before, placement.segments, placement.groups)};
  }
  return out;
}

// layer_norm(input, normalized_shape, weight, bias, …), over the last dims.
Outcome norm(const Operation& op) {
  const Placement& placement = op.placement(0);
  if (!placement.is_sharded()) return op.whole("its weight is split");
  const auto over = static_cast<int64_t>(op.numbers(1).size());
  if (placement.dim >= static_cast<int64_t>(op.sizes(0).size()) - over) {
    op.refuse(fmt::format("{} goes along the dim that would be split", op.kind()));
  }
  Outcome out = op.as_it_is();
  for (size_t i = 1; i < op.num_inputs(); ++i) {
    if (op.placement(i).is_sharded()) op.refuse("its weight is split");
    if (op.is_tensor(i)) out.reads[i] = {Placement()};
  }
  out.results[0] = {placement};
  return out;
}

// embedding(table, indices, …)
Outcome embedding(const Operation& op) {
  const Placement& table = op.placement(0);
  const Placement& indices = op.placement(1);
  if (!table.is_sharded()) return op.whole("its indices are split");
  if (indices.is_sharded()) op.refuse("its indices are split");
  Outcome out = op.as_it_is();
  out.reads[1] = {Placement()};
  if (table.dim == 1) {
    out.results[0] = {sharded(static_cast<int64_t>(op.result_sizes().size()) - 1, table.segments)};
    return out;
  }
  out.rewrite = Rewrite::kEmbeddingOfSlice;
  out.segments = table.segments;
  out.results[0] = {partial(origins_of(table.segments))};
  return out;
}

// cross_entropy(logits, labels, weight, reduction, ignore_index, label_smoothing, …) can be computed of parts of the
// classes, if labels are classes and the weights of classes are not trained. `first`: the input of the weight.
void require_loss_of_parts(const Operation& op, size_t first) {
  const c10::IValue* labels = op.known(first - 1);
  if (!op.is_tensor(first - 1) || labels->toTensor().scalar_type() != at::kLong) {
    op.refuse("the loss is of probabilities, not of classes");
  }
  if (op.is_none(first)) return;
  const auto kind = op.node().input(first)->node()->kind();
  const bool is_held =
      kind == c10::prim::GetAttr || kind == c10::prim::Constant || !op.known(first)->toTensor().is_meta();
  if (!op.is_tensor(first) || !is_held || op.parameter(first) != nullptr)
    op.refuse("the loss has class weights that are computed");
}

Outcome cross_entropy(const Operation& op) {
  const Placement& logits = op.placement(0);
  if (!logits.is_sharded()) return op.whole("its labels are split");
  if (op.sizes(0).size() != 2 || logits.dim != 1) op.refuse("the loss is of another dim than the classes");
  require_loss_of_parts(op, 2);
  Outcome out = op.as_it_is();
  out.rewrite = Rewrite::kLossOfSlice;
  out.segments = logits.segments;
  return out;
}

// chunked_cross_entropy(input, head, bias, is_out_in, classes, labels, weight, reduction, …)
Outcome chunked_head(const Operation& op) {
  const auto form = gemm_form(op);
  const Placement& head = op.placement(1);
  if (!form || op.placement(0).is_sharded() || !head.is_sharded()) return op.whole("its input is split");
  if (head.dim != form->weight_out) op.refuse("its weight is split in another dim than the classes");
  require_loss_of_parts(op, 6);
  Outcome out = op.as_it_is();
  out.reads[0] = {Placement()};
  if (op.is_tensor(2)) {
    const Placement& bias = op.placement(2);
    const bool is_so = bias.is_sharded() && lie_alike(bias.segments, head.segments);
    if (!is_so) op.shard_parameter(2, 0, head.segments);
    out.reads[2] = {sharded(0, head.segments)};
  }
  out.rewrite = Rewrite::kHeadOfSlice;
  out.segments = head.segments;
  return out;
}

constexpr RuleRow kRows[] = {
    {"sum mean amax amin max min var std any all logsumexp cumsum argmax argmin softmax log_softmax topk sort prod "
     "linalg_vector_norm norm",
     along_dims},
    {"layer_norm rms_norm", norm},
    {"embedding", embedding},
    {"cross_entropy_loss", cross_entropy},
};

}  // namespace

Rule reduction_rule(std::string_view kind) {
  if (kind == "dslaunch::layer_norm") return norm;
  if (kind == "dslaunch::cross_entropy") return cross_entropy;
  if (kind == "dslaunch::chunked_cross_entropy") return chunked_head;
  return rule_among(kind, kRows);
}

}  // namespace dslaunch::runtime::model::placement
