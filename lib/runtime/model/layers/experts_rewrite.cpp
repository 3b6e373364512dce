// The operators of experts.hpp in graphs, and what finds their place: from the sort of the experts that tokens have
// chosen to the sum of each token's rows.
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/node_checks.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/experts.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using graph::elements;
using graph::is;
using graph::is_none;
using graph::number;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

void order_operator(Stack& stack) {
  const int64_t num_experts = torch::jit::pop(stack).toInt();
  const at::Tensor experts = torch::jit::pop(stack).toTensor();
  auto order = expert_order(experts, num_experts);
  torch::jit::push(stack, std::move(order.entry_of_row), std::move(order.row_of_entry), std::move(order.ends));
}

void rows_operator(Stack& stack) {
  const int64_t choices = torch::jit::pop(stack).toInt();
  const at::Tensor row_of_entry = torch::jit::pop(stack).toTensor(), entry_of_row = torch::jit::pop(stack).toTensor();
  const at::Tensor tokens = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, expert_rows(tokens, {entry_of_row, row_of_entry, {}}, choices));
}

void sum_operator(Stack& stack) {
  const auto dtype = torch::jit::pop(stack).toScalarType();
  const int64_t choices = torch::jit::pop(stack).toInt();
  const at::Tensor row_of_entry = torch::jit::pop(stack).toTensor(), entry_of_row = torch::jit::pop(stack).toTensor();
  const at::Tensor weights = torch::jit::pop(stack).toTensor(), rows = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, expert_sum(rows, weights, {entry_of_row, row_of_entry, {}}, choices, dtype));
}

constexpr auto kFromSchema = c10::AliasAnalysisKind::FROM_SCHEMA;
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::expert_order(Tensor experts, int num_experts) -> (Tensor, Tensor, Tensor)",
                          order_operator, kFromSchema),
     torch::jit::Operator("dslaunch::expert_rows(Tensor tokens, Tensor entry_of_row, Tensor row_of_entry, int choices) "
                          "-> Tensor",
                          rows_operator, kFromSchema),
     torch::jit::Operator("dslaunch::expert_sum(Tensor rows, Tensor weights, Tensor entry_of_row, Tensor row_of_entry, "
                          "int choices, ScalarType dtype) -> Tensor",
                          sum_operator, kFromSchema)});

// The integer that a trace wraps into tensors and takes out again.
Value* unwrapped(Value* value) {
  while (is(value->node(), "prim::NumToTensor") || is(value->node(), "aten::Int")) value = value->node()->input(0);
  return value;
}

bool is_same_number(Value* one, Value* other) {
  one = unwrapped(one), other = unwrapped(other);
  const auto constant = number(one);
  return one == other || (constant && constant == number(other));
}

Node* only_user(const Value* value) {
  return value->uses().size() == 1 ? value->uses()[0].user : nullptr;
}

// x[indices]: the users of the lists that hold the indices alone. Empty if something else reads them.
struct IndexUsers {
  std::vector<Node*> nodes;   // aten::index, aten::index_put_
  std::vector<Node*> lists;   // of indices
  std::vector<Node*> others;  // of the value itself
};

IndexUsers index_users(const Value* indices) {
  IndexUsers out;
  for (const auto& use : indices->uses()) {
    if (use.user->kind() != c10::prim::ListConstruct) {
      out.others.push_back(use.user);
      continue;
    }
    out.lists.push_back(use.user);
    for (const auto& of_list : use.user->output()->uses()) {
      const bool is_alone = use.user->inputs().size() == 1 && of_list.offset == 1;
      (is_alone ? out.nodes : out.others).push_back(of_list.user);
    }
  }
  return out;
}

class Layer {
 public:
  explicit Layer(Node* sort) : sort_(sort) { add(sort); }

  // Whether the sort begins such a layer. Changes nothing.
  bool find() {
    return is(sort_, "aten::sort") && sort_->inputs().size() == 3 && graph::flag(sort_->input(2)) == false &&
           sorts_one_dim() && find_users_of_entries() && find_users_of_experts() && find_sum() && is_in_one_block() &&
           keeps_weights();
  }

  void replace() {
    auto& graph = *sort_->owningGraph();
    const auto make = [&](const char* kind, at::ArrayRef<Value*> inputs, size_t outputs, Node* at) {
      Node* node = graph.create(c10::Symbol::fromQualString(kind), inputs, outputs);
      node->setSourceRange(at->sourceRange());
      return node->insertBefore(at);
    };
    Node* order = make("dslaunch::expert_order", {sort_->input(0), num_experts_}, 3, sort_);
    for (Value* output : order->outputs()) output->setType(c10::TensorType::get());
    ends_->replaceAllUsesWith(order->output(2));
    Node* rows =
        make("dslaunch::expert_rows", {gather_->input(0), order->output(0), order->output(1), choices_}, 1, gather_);
    gather_->output()->replaceAllUsesWith(rows->output());
    for (Node* mask : masked_) mask->output()->replaceAllUsesWith(mask->input(0));
    Node* sum =
        make("dslaunch::expert_sum",
             {weighed_, weights_->input(0), order->output(0), order->output(1), choices_, last_->input(1)}, 1, last_);
    if (is(weighed_->node(), "aten::masked_fill")) sum->replaceInput(0, weighed_->node()->input(0));
    last_->output()->replaceAllUsesWith(sum->output());
    destroy();
  }

 private:
  void add(Node* node) { nodes_.insert(node); }
  template <class Nodes>
  void add_all(const Nodes& nodes) {
    nodes_.insert(nodes.begin(), nodes.end());
  }

  bool sorts_one_dim() const {
    Node* flat = sort_->input(0)->node();
    if (!is(flat, "aten::reshape") && !is(flat, "aten::view")) return false;
    const auto sizes = elements(flat->input(1));
    const auto constant = torch::jit::toIValue(flat->input(1));
    return (sizes.size() == 1 && number(sizes[0]) == -1) ||
           (constant && constant->isIntList() && constant->toIntVector() == std::vector<int64_t>{-1});
  }

  // The order of the entries: rows of tokens, weights, and the inverse.
  bool find_users_of_entries() {
    const auto users = index_users(sort_->output(1));
    for (Node* node : users.nodes) {
      if (is(node, "aten::index") && weights_ == nullptr) {
        weights_ = node;
      } else if (is(node, "aten::index_put_") && inverse_ == nullptr && graph::flag(node->input(3)) == false) {
        inverse_ = node;
      } else {
        return false;
      }
    }
    if (weights_ == nullptr || inverse_ == nullptr || !find_inverse()) return false;
    for (Node* node : users.others) {
      if (is(node, "aten::floor_divide") && gather_ == nullptr) {
        if (!find_gather(node)) return false;
      } else if (!is(node, "aten::empty_like") && !is(node, "aten::size")) {
        return false;
      } else if (nodes_.count(node) == 0) {
        return false;
      }
    }
    add_all(users.nodes);
    add_all(users.lists);
    return gather_ != nullptr;
  }

  // empty_like(entries)[entries] = arange(their number)
  bool find_inverse() {
    Node *empty = inverse_->input(0)->node(), *numbers = inverse_->input(2)->node();
    if (!is(empty, "aten::empty_like") || !is(numbers, "aten::arange")) return false;
    Value* count = numbers->input(0);
    std::vector<Node*> made{inverse_, empty, numbers};
    while (is(count->node(), "aten::ScalarImplicit") || is(count->node(), "prim::NumToTensor") ||
           is(count->node(), "aten::Int")) {
      made.push_back(count->node());
      count = count->node()->input(0);
    }
    made.push_back(count->node());
    const bool is_count = is(count->node(), "aten::size") && count->node()->input(0) == sort_->output(1);
    if (empty->input(0) != sort_->output(1) || !is_count || numbers->inputs().size() != 5) return false;
    add_all(made);
    return true;
  }

  // tokens[entries / choices]
  bool find_gather(Node* divide) {
    if (divide->input(0) != sort_->output(1)) return false;
    choices_ = unwrapped(divide->input(1));
    const auto users = index_users(divide->output());
    if (choices_->type()->kind() != c10::TypeKind::IntType || users.nodes.size() != 1 || !users.others.empty() ||
        !is(users.nodes[0], "aten::index")) {
      return false;
    }
    gather_ = users.nodes[0];
    add(divide);
    add_all(users.lists);
    add(gather_);
    return true;
  }

  // The sorted experts: their counts, and masks for entries of none.
  bool find_users_of_experts() {
    std::vector<Node*> compared, clamped;
    for (const auto& use : sort_->output(0)->uses()) {
      if (is(use.user, "aten::to") && use.offset == 0 && ends_ == nullptr) {
        if (!find_ends(use.user)) return false;
      } else if (is(use.user, "aten::ge")) {
        compared.push_back(use.user);
      } else if (is(use.user, "aten::clamp_") && !use.user->hasUses()) {
        clamped.push_back(use.user);
      } else {
        return false;
      }
    }
    add_all(clamped);
    return ends_ != nullptr && std::all_of(compared.begin(), compared.end(), [&](Node* ge) { return find_masks(ge); });
  }

  bool find_ends(Node* cast) {
    Node* counts = only_user(cast->output());
    if (counts == nullptr || !is(counts, "aten::histc")) return false;
    Node* sum = only_user(counts->output());
    if (sum == nullptr || !is(sum, "aten::cumsum")) return false;
    num_experts_ = counts->input(1);
    const auto experts = number(num_experts_);
    if (!experts || number(counts->input(2)) != 0 || number(counts->input(3)) != *experts - 1 ||
        number(sum->input(1)) != 0 || number(sum->input(2)) != static_cast<int64_t>(at::kInt)) {
      return false;
    }
    ends_ = sum->output();
    add_all(std::vector<Node*>{cast, counts, sum});
    return true;
  }

  // x.masked_fill((experts >= their number).unsqueeze(-1), 0), in place or not
  bool find_masks(Node* compared) {
    Node* wide = only_user(compared->output());
    if (number(compared->input(1)) != number(num_experts_) || wide == nullptr || !is(wide, "aten::unsqueeze") ||
        number(wide->input(1)) != -1) {
      return false;
    }
    for (const auto& use : wide->output()->uses()) {
      const bool fills = is(use.user, "aten::masked_fill") || is(use.user, "aten::masked_fill_");
      const auto value = fills ? torch::jit::toIValue(use.user->input(2)) : std::nullopt;
      if (!fills || use.offset != 1 || !value || !value->isScalar() || value->toScalar().toDouble() != 0) return false;
      masked_.push_back(use.user);
    }
    add(compared);
    add(wide);
    add_all(masked_);
    return true;
  }

  // (rows * weights)[inverse].view(tokens, choices, columns).sum(1).to(dtype)
  bool find_sum() {
    Node* wide = only_user(weights_->output());
    Node* product = wide != nullptr && is(wide, "aten::unsqueeze") ? only_user(wide->output()) : nullptr;
    if (product == nullptr || !is(product, "aten::mul") || number(wide->input(1)) != -1) return false;
    weighed_ = product->input(product->input(0) == wide->output() ? 1 : 0);
    // Read as what index_put_ returns, or as what it has written to.
    const auto users = index_users(inverse_->hasUses() ? inverse_->output() : inverse_->input(0));
    const std::vector<Node*> writes(inverse_->hasUses() ? 0 : 1, inverse_);
    Node* put_back = only_user(product->output());
    if (users.nodes.size() != 1 || users.others != writes || users.nodes[0] != put_back || put_back == nullptr ||
        !is(put_back, "aten::index") || !put_back->isAfter(inverse_) ||
        (inverse_->hasUses() && only_user(inverse_->input(0)) != inverse_)) {
      return false;
    }
    Node* view = only_user(put_back->output());
    if (view == nullptr || (!is(view, "aten::view") && !is(view, "aten::reshape"))) return false;
    const auto sizes = elements(view->input(1));
    Node* sum = only_user(view->output());
    if (sizes.size() != 3 || !is_same_number(sizes[1], choices_) || sum == nullptr || !is(sum, "aten::sum") ||
        sum->inputs().size() != 4 || graph::flag(sum->input(2)) != false || !is_none(sum->input(3))) {
      return false;
    }
    const auto dims = torch::jit::toIValue(sum->input(1));
    const auto listed = elements(sum->input(1));
    const bool is_over_choices = (dims && dims->isIntList() && dims->toIntVector() == std::vector<int64_t>{1}) ||
                                 (listed.size() == 1 && number(listed[0]) == 1);
    last_ = only_user(sum->output());
    if (!is_over_choices || last_ == nullptr || !is(last_, "aten::to") ||
        last_->input(1)->type()->kind() != c10::TypeKind::IntType) {
      return false;
    }
    add_all(std::vector<Node*>{wide, product, put_back, view, sum, last_});
    add_all(users.lists);
    return true;
  }

  bool is_in_one_block() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const Node* node) { return node->owningBlock() == sort_->owningBlock(); });
  }

  // The sum reads the weights later than the model does: nothing may write to them meanwhile.
  bool keeps_weights() const {
    const graph::Aliases aliases(sort_->owningBlock());
    const auto weights = aliases.reached_from(weights_->input(0));
    const auto shares = [&](const Value* value) {
      const auto sets = aliases.reached_from(value);
      return std::any_of(sets.begin(), sets.end(), [&](int set) { return weights.count(set) > 0; });
    };
    for (Node* node = weights_->next(); node != last_; node = node->next()) {
      const auto* schema = node->maybeSchema();
      const bool may_write = !node->blocks().empty() || schema == nullptr || schema->is_mutable();
      const bool is_plain = nodes_.count(node) > 0 || node->kind() == c10::prim::Constant ||
                            node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::ListConstruct ||
                            node->kind() == c10::prim::ListUnpack;
      if (is_plain || !may_write) continue;
      if (!node->blocks().empty()) return false;
      if (std::any_of(node->inputs().begin(), node->inputs().end(), shares)) return false;
    }
    return true;
  }

  // Users before what they read.
  void destroy() {
    std::vector<Node*> nodes(nodes_.begin(), nodes_.end());
    std::sort(nodes.begin(), nodes.end(),
              [](const Node* one, const Node* other) { return one != other && one->isAfter(other); });
    for (Node* node : nodes) {
      if (!node->hasUses()) node->destroy();
    }
  }

  Node* sort_;
  Node *gather_ = nullptr, *weights_ = nullptr, *inverse_ = nullptr, *last_ = nullptr;
  Value *choices_ = nullptr, *num_experts_ = nullptr, *ends_ = nullptr, *weighed_ = nullptr;
  std::vector<Node*> masked_;
  std::set<Node*> nodes_;  // what the operators take the place of
};

}  // namespace

int order_experts(const torch::jit::Module& model) {
  std::vector<Node*> sorts;
  graph::for_every_node(model, [&](Node* node) {
    if (is(node, "aten::sort")) sorts.push_back(node);
  });
  int count = 0;
  for (Node* sort : sorts) {
    Layer layer(sort);
    if (!layer.find()) continue;
    layer.replace();
    count += 1;
  }
  return count;
}

}  // namespace dslaunch::runtime::model::layers
