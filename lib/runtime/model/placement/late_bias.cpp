#include "runtime/model/placement/late_bias.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <string_view>
#include <vector>

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
using torch::jit::WithInsertPoint;

class Separation {
 public:
  Separation(graph::FlatGraph& flat, KnownValues& known, std::unordered_set<const Value*>& written)
      : flat_(flat), graph_(*flat.graph), known_(known), written_(written) {}

  void run(Node* node, bool behind_views) {
    const std::string_view kind = node->kind().toQualString();
    const auto call = flat_.call_of.find(node);
    const auto of_call = call == flat_.call_of.end() ? std::nullopt : std::optional(call->second);
    const WithInsertPoint before(node);
    Value *bias = nullptr, *gemm = nullptr;
    if (kind == "aten::addmm") {
      bias = node->input(0);
      gemm = insert("aten::mm", {node->input(1), node->input(2)});
    } else if (kind == "dslaunch::addmm") {
      bias = node->input(0);
      gemm = insert("dslaunch::matmul", {node->input(1), node->input(2), node->input(5), node->input(6)});
    } else {
      bias = node->input(2);
      std::vector<Value*> inputs = node->inputs().vec();
      inputs[2] = graph_.insertConstant(c10::IValue());
      give(inputs[2]->node(), of_call);
      gemm = insert(node->kind().toQualString(), inputs);
    }
    gemm->node()->setSourceRange(node->sourceRange());
    gemm->setType(node->output()->type());
    know(gemm, node->output());
    give(gemm->node(), of_call);
    Node* view = behind_views ? view_of(node) : nullptr;
    if (view != nullptr) view->replaceInput(0, gemm);
    add(view == nullptr ? gemm : view->output(), view == nullptr ? node->output() : view->output(), bias, of_call);
    known_.values.erase(node->output());
    written_.erase(node->output());
    flat_.call_of.erase(node);
    node->destroy();
  }

 private:
  Value* insert(const char* kind, const std::vector<Value*>& inputs) {
    return graph_.insertNode(graph_.create(c10::Symbol::fromQualString(kind), inputs))->output();
  }

  // What reads `old` reads `product` + `bias` instead.
  void add(Value* product, Value* old, Value* bias, std::optional<size_t> call) {
    const WithInsertPoint behind(product->node()->next());
    Value* one = graph_.insertConstant(int64_t{1});
    Value* sum = insert("aten::add", {product, bias, one});
    sum->setType(old->type());
    know(sum, old);
    if (written_.count(old) > 0) written_.insert(sum);
    known_.values.insert_or_assign(one, c10::IValue(int64_t{1}));
    for (const Node* node : {one->node(), sum->node()}) give(node, call);
    old->replaceAllUsesAfterNodeWith(sum->node(), sum);
  }

  // The only reader of a GEMM without a dim of positions, if it gives it one.
  Node* view_of(const Node* node) const {
    const Value* product = node->output();
    if (product->uses().size() != 1) return nullptr;
    Node* view = product->uses()[0].user;
    const auto kind = view->kind();
    if (kind != c10::aten::view && kind != c10::aten::reshape && kind != c10::aten::_unsafe_view) return nullptr;
    const auto flat = known_.sizes(product), viewed = known_.sizes(view->output());
    const bool gives_dim = flat && viewed && flat->size() == 2 && viewed->size() == 3 && flat->back() == viewed->back();
    const bool is_alone = view->owningBlock() == node->owningBlock() && written_.count(view->output()) == 0;
    return gives_dim && is_alone ? view : nullptr;
  }

  void know(const Value* value, const Value* like) {
    if (const c10::IValue* known = known_.find(like)) known_.values.insert_or_assign(value, c10::IValue(*known));
  }
  void give(const Node* node, std::optional<size_t> call) {
    if (call) flat_.call_of.insert_or_assign(node, *call);
  }

  graph::FlatGraph& flat_;
  Graph& graph_;
  KnownValues& known_;
  std::unordered_set<const Value*>& written_;
};

}  // namespace

void separate_late_biases(graph::FlatGraph& flat, KnownValues& known, std::unordered_set<const Value*>& written,
                          const Propagated& propagated, bool behind_views) {
  Separation separation(flat, known, written);
  const std::vector<Node*> nodes(flat.graph->nodes().begin(), flat.graph->nodes().end());
  for (Node* node : nodes) {
    const auto found = propagated.outcomes.find(node);
    if (found == propagated.outcomes.end() || found->second.rewrite != Rewrite::kLateBias) continue;
    separation.run(node, behind_views);
  }
}

}  // namespace dslaunch::runtime::model::placement
