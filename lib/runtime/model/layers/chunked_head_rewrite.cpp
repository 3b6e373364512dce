// The operator of chunked_head.hpp in graphs, and the pass that puts it there.
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

void chunked_operator(Stack& stack, const device::GemmCachePtr& gemms,
                      const tensor_parallel::SharedClassesPtr& shared) {
  constexpr size_t kCount = 11;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  const HeadLoss loss{.is_out_in = at(3).toBool(),
                      .classes = at(4).toInt(),
                      .reduction = at(7).toInt(),
                      .ignore_index = at(8).toInt(),
                      .label_smoothing = at(9).toDouble(),
                      .in_float = at(10).toBool(),
                      .gemms = gemms,
                      .shared = shared};
  at::Tensor total = chunked_cross_entropy(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(),
                                           at(5).toTensor(), at(6).toOptional<at::Tensor>(), loss);
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(total));
}

// A node of a sharded head has a tensor group and the layout of the classes.
torch::jit::Operation run_chunked(const Node* node) {
  tensor_parallel::SharedClassesPtr shared;
  if (const auto group = tensor_parallel::tensor_group_of(node)) {
    shared = c10::make_intrusive<tensor_parallel::SharedClasses>(tensor_parallel::layout_of(node), group);
  }
  return [gemms = gemms_of(node).cache, shared](Stack& stack) { chunked_operator(stack, gemms, shared); };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator(
    "dslaunch::chunked_cross_entropy(Tensor input, Tensor head, Tensor? bias, bool is_out_in, int classes, Tensor "
    "target, Tensor? weight, int reduction, int ignore_index, float label_smoothing, bool in_float) -> Tensor",
    run_chunked, c10::AliasAnalysisKind::FROM_SCHEMA)});

bool is(const Node* node, std::string_view kind) {
  return kind == node->kind().toQualString();
}

std::optional<int64_t> int_of(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
}

// From logits to the rows of the loss.
bool keeps_rows(const Node* node) {
  return is(node, "aten::view") || is(node, "aten::reshape") || is(node, "aten::contiguous") || is(node, "aten::slice");
}

// A slice of all elements; by constants.
bool is_whole(const Node* slice) {
  return (slice->input(2)->mustBeNone() || int_of(slice->input(2)) == 0) &&
         (slice->input(3)->mustBeNone() || int_of(slice->input(3)) == std::numeric_limits<int64_t>::max()) &&
         int_of(slice->input(4)) == 1;
}

// The function that computes a value of a graph; null: it is not computed by a call, or not by TorchScript.
GraphFunction* callee_of(const Node* node) {
  torch::jit::Function* function = nullptr;
  if (node->kind() == c10::prim::CallMethod) {
    const auto type = node->input(0)->type()->cast<c10::ClassType>();
    if (type) function = type->findMethod(node->s(c10::attr::name));
  } else if (node->kind() == c10::prim::CallFunction) {
    function = node->input(0)->type()->expect<c10::FunctionType>()->function();
  }
  if (function == nullptr || !function->isGraphFunction()) return nullptr;
  function->ensure_defined();
  return &torch::jit::toGraphFunction(*function);
}

bool is_gemm(const Node* node) {
  if (is(node, "aten::addmm")) return int_of(node->input(3)) == 1 && int_of(node->input(4)) == 1;
  return is(node, "aten::linear") || (is(node, "aten::matmul") && node->inputs().size() == 2);
}

// One with a weight that may be a parameter.
bool is_head(const Node* node) {
  return is_gemm(node) && !is_computed(node->input(operators::traits(node->kind()).gemm.weight));
}

// The number of classes, where the node asks for it.
bool reads_classes(const Node* node) {
  return is(node, "aten::size") && node->inputs().size() == 2 && int_of(node->input(1)) == -1;
}

// Whether nothing but `user` and questions for the number of classes needs the value.
bool is_read_by(const Value* value, const Node* user) {
  return std::all_of(value->uses().begin(), value->uses().end(),
                     [&](const torch::jit::Use& use) { return use.user == user || reads_classes(use.user); });
}

// Whether the operand of `user` comes from a head, also through calls, and nothing else needs the logits.
bool comes_from_head(const Node* user, int depth = 0) {
  constexpr int kMaxCalls = 8;
  const Value* value = user->input(0);
  while (is_read_by(value, user)) {
    const Node* node = value->node();
    if (const auto* callee = callee_of(node); callee != nullptr && depth < kMaxCalls) {
      const Node* result = const_cast<GraphFunction*>(callee)->graph()->return_node();
      return result->inputs().size() == 1 && comes_from_head(result, depth + 1);
    }
    if (!keeps_rows(node)) return is_head(node);
    user = node;
    value = node->input(0);
  }
  return false;
}

// Inlines calls until the value's GEMM stands in the graph itself; the chain from the GEMM to the loss, or empty.
std::vector<Node*> chain_to(Node* loss) {
  if (!comes_from_head(loss)) return {};
  std::vector<Node*> chain;
  const Value* value = loss->input(0);
  while (true) {
    Node* node = const_cast<Value*>(value)->node();
    if (node->owningBlock() != loss->owningBlock()) return {};
    if (auto* callee = callee_of(node); callee != nullptr) {
      if (node->kind() == c10::prim::CallFunction) node->removeInput(0);
      Node* user = chain.empty() ? loss : chain.back();
      torch::jit::inlineCallTo(node, callee, callee->graph().get());
      value = user->input(0);
      continue;
    }
    chain.push_back(node);
    if (!keeps_rows(node)) break;
    value = node->input(0);
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

// A slice of the chain that drops positions, never classes: of a dim before the last. `dim` < 0 says so itself, else a
// later slice of a higher dim.
bool drops_rows(const std::vector<Node*>& chain, size_t at) {
  const auto dim = int_of(chain[at]->input(1));
  if (!dim) return false;
  if (*dim < 0) return *dim < -1;
  for (size_t i = at + 1; i < chain.size() && is(chain[i], "aten::slice"); ++i) {
    if (const auto other = int_of(chain[i]->input(1)); other && *other > *dim) return true;
  }
  return false;
}

// What the loss takes as its number of classes: the last of two sizes of the last view. Null: other views.
Value* classes_of(const std::vector<Node*>& chain) {
  Value* classes = nullptr;
  for (size_t i = 1; i < chain.size(); ++i) {
    const Node* node = chain[i];
    if (is(node, "aten::contiguous")) continue;
    if (is(node, "aten::slice")) {
      if (classes != nullptr || (!is_whole(node) && !drops_rows(chain, i))) return nullptr;
      continue;
    }
    const Node* sizes = node->input(1)->node();
    if (classes != nullptr || sizes->kind() != c10::prim::ListConstruct || sizes->inputs().size() != 2) return nullptr;
    classes = const_cast<Node*>(sizes)->input(1);
  }
  return classes != nullptr && int_of(classes).value_or(1) > 0 ? classes : nullptr;
}

struct Gemm {
  Value *input, *weight, *bias;  // bias: null without
  bool is_out_in;
};

Gemm gemm_of(Node* node) {
  const auto inputs = operators::traits(node->kind()).gemm;
  return {node->input(inputs.factor), node->input(inputs.weight), inputs.bias < 0 ? nullptr : node->input(inputs.bias),
          is(node, "aten::linear")};
}

void replace(const std::vector<Node*>& chain, Value* classes, Node* loss) {
  Graph& graph = *loss->owningGraph();
  const Gemm gemm = gemm_of(chain.front());
  {
    const torch::jit::WithInsertPoint there(chain.front());  // before those who ask for sizes
    Value* dim = graph.insertConstant(gemm.is_out_in ? 0 : 1);
    for (Node* node : chain) {
      const std::vector<torch::jit::Use> uses = node->output()->uses();
      for (const auto& use : uses) {
        if (!reads_classes(use.user)) continue;
        use.user->replaceInput(0, gemm.weight);
        use.user->replaceInput(1, dim);
      }
    }
  }
  const torch::jit::WithInsertPoint before(loss);
  Value* input = gemm.input;
  for (Node* node : chain) {
    if (!is(node, "aten::slice") || is_whole(node)) continue;
    Node* same = graph.createClone(node, [](Value* value) { return value; });
    same->replaceInput(0, input);
    same->output()->setType(c10::TensorType::get());
    graph.insertNode(same);
    input = same->output();
  }
  Value* none = graph.insertConstant(c10::IValue());
  Node* chunked = graph.create(
      c10::Symbol::fromQualString(kChunkedOperator),
      {input, gemm.weight, gemm.bias != nullptr ? gemm.bias : none, graph.insertConstant(gemm.is_out_in), classes},
      /*num_outputs=*/1);
  for (size_t i = 1; i < loss->inputs().size(); ++i) chunked->addInput(loss->input(i));
  chunked->setSourceRange(loss->sourceRange());
  chunked->output()->copyMetadata(loss->output());
  graph.insertNode(chunked);
  loss->output()->replaceAllUsesWith(chunked->output());
  loss->destroy();
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) (*node)->destroy();
}

bool chunk_head(Node* loss) {
  const auto chain = chain_to(loss);
  if (chain.empty() || !is_head(chain.front())) return false;
  Value* classes = classes_of(chain);
  if (classes == nullptr || may_write_between(chain.front(), loss)) return false;
  replace(chain, classes, loss);
  return true;
}

}  // namespace

int chunk_heads(const torch::jit::Module& model) {
  int count = 0;
  graph::for_every_node(model, [&](Node* node) {
    if (is(node, kCrossEntropyOperator)) count += chunk_head(node) ? 1 : 0;
  });
  return count;
}

}  // namespace dslaunch::runtime::model::layers
