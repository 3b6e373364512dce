#include "runtime/model/layers/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <vector>

#include "runtime/device/device_module.hpp"
#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/layer_functions.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

at::Tensor with_operators(const at::Tensor& logits, const at::Tensor& labels, const std::optional<at::Tensor>& weight,
                          int64_t reduction, int64_t ignore_index, double label_smoothing, bool in_float) {
  return at::cross_entropy_loss(in_float ? logits.to(at::kFloat) : logits, labels, weight, reduction, ignore_index,
                                label_smoothing);
}

// At 16 bits PyTorch writes the logits in fp32, their log-softmax in fp32 and both gradients: 26 bytes per element;
// this implementation takes 6.
class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            int64_t reduction, int64_t ignore_index, bool in_float) {
    const auto options = logits.options().dtype(at::kFloat);
    const at::Tensor losses = at::empty({logits.size(0)}, options), log_sums = at::empty({logits.size(0)}, options);
    at::Tensor total = at::empty({}, options);
    const at::Tensor weight = at::empty({}, options);
    device::module().layers.cross_entropy(logits, labels, ignore_index, losses, log_sums);
    device::module().layers.cross_entropy_total(losses, labels, ignore_index, reduction == at::Reduction::Mean, total,
                                                weight);
    context->save_for_backward({logits, labels, log_sums, weight});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["in_float"] = in_float;
    return in_float ? total : total.to(logits.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &labels = saved[1];
    const int64_t ignore_index = context->saved_data["ignore_index"].toInt();
    if (at::GradMode::is_enabled()) {  // second-order gradients are wanted
      const auto loss = with_operators(logits, labels, {}, context->saved_data["reduction"].toInt(), ignore_index, 0.0,
                                       context->saved_data["in_float"].toBool());
      auto gradients = torch::autograd::grad({loss}, {logits}, {upstream[0]}, true, /*create_graph=*/true);
      return {gradients[0], {}, {}, {}, {}};
    }
    at::Tensor gradient = at::empty_like(logits);
    device::module().layers.cross_entropy_gradient(logits, labels, ignore_index, saved[2], saved[3],
                                                   upstream[0].to(at::kFloat).contiguous(), gradient);
    return {std::move(gradient), {}, {}, {}, {}};
  }
};

bool fits(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.is_cuda() && labels.device() == logits.device() && is_kernel_type(logits.scalar_type()) &&
         labels.scalar_type() == at::kLong && logits.dim() == 2 && labels.dim() == 1 &&
         labels.size(0) == logits.size(0) && logits.numel() > 0;
}

void cross_entropy_operator(Stack& stack) {
  constexpr size_t kCount = 7;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor loss = fused_cross_entropy(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(),
                                        at(3).toInt(), at(4).toInt(), at(5).toDouble(), at(6).toBool());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(loss));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::cross_entropy(Tensor self, Tensor target, Tensor? weight, int reduction, int "
                          "ignore_index, float label_smoothing, bool in_float) -> Tensor",
                          cross_entropy_operator, c10::AliasAnalysisKind::FROM_SCHEMA)});

// A cast to fp32, also before operators whose output elements are unchanged elements of the first input.
const graph::Pattern& cast_to_float() {
  static const graph::Pattern pattern{
      .operators = {"aten::to"},
      .operands = {{"dtype", {.constant = static_cast<int64_t>(at::kFloat)}}},
      .through = {"aten::view", "aten::reshape", "aten::contiguous", "aten::slice", "aten::flatten", "aten::squeeze"}};
  return pattern;
}

bool reads_shape_only(const Node* node) {
  return operators::traits(node->kind()).reads == operators::Reads::kShape;
}

bool may_write(const Node* node) {
  const auto kind = node->kind();
  if (kind == c10::prim::CallFunction) {
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    return !function->isGraphFunction() ||
           graph::any_node(torch::jit::toGraphFunction(*function).graph()->block(), may_write);
  }
  if (kind == c10::prim::CallMethod || kind == c10::prim::SetAttr || kind == c10::prim::fork ||
      kind == c10::prim::Enter || kind == c10::prim::Exit) {
    return true;
  }
  const auto* schema = node->maybeSchema();
  return schema != nullptr && schema->is_mutable();
}

// Whether other nodes need the cast's elements: they and `user` then share its gradient, which accumulates in fp32.
bool has_other_users(const graph::Match& chain, const Node* user) {
  return std::any_of(chain.begin(), chain.end(), [&](const Node* node) {
    const auto& uses = node->output()->uses();
    return std::any_of(uses.begin(), uses.end(), [&](const torch::jit::Use& use) {
      const bool in_chain = std::find(chain.begin(), chain.end(), use.user) != chain.end();
      return use.user != user && !in_chain && !reads_shape_only(use.user);
    });
  });
}

void redirect_shape_reads(Value* from, Value* to) {
  const std::vector<torch::jit::Use> uses = from->uses();
  for (const auto& use : uses) {
    if (reads_shape_only(use.user)) use.user->replaceInput(use.offset, to);
  }
}

bool is_cross_entropy(const Node* node) {
  return node->kind() == c10::aten::cross_entropy_loss;
}

}  // namespace

at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float) {
  const bool is_weighed = weight && weight->defined();
  // Under autocast the operator computes in fp32 anyway.
  const bool casts = in_float || at::autocast::is_autocast_enabled(logits.device().type());
  if (is_weighed || label_smoothing != 0.0 || reduction == at::Reduction::None || !fits(logits, labels)) {
    return with_operators(logits, labels, weight, reduction, ignore_index, label_smoothing, in_float);
  }
  return FusedCrossEntropy::apply(logits.contiguous(), labels.contiguous(), reduction, ignore_index, casts);
}

bool may_write_between(const Node* first, const Node* last) {
  for (const Node* node = first->next(); node != last; node = node->next()) {
    if (graph::any_node(node, may_write)) return true;
  }
  return false;
}

bool remove_cast(Node* user) {
  const graph::Match chain = graph::match(user->input(0), user->owningBlock(), cast_to_float());
  if (chain.empty() || has_other_users(chain, user) || may_write_between(chain.front(), user)) return false;
  Value* value = chain.front()->input(0);
  for (Node* node : chain) {
    if (node != chain.front()) {
      Node* same = node->owningGraph()->createClone(node, [](Value* input) { return input; });
      same->replaceInput(0, value);
      same->output()->setType(c10::TensorType::get());  // a trace has recorded element types: those after the cast
      same->insertAfter(node);
      value = same->output();
    }
    redirect_shape_reads(node->output(), value);
  }
  user->replaceInput(0, value);
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) (*node)->destroy();
  return true;
}

void inline_cross_entropy(const torch::jit::Module& model) {
  graph::for_every_node(model, [](Node* node) {
    if (node->kind() != c10::prim::CallFunction) return;
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    if (!function->isGraphFunction()) return;
    auto& callee = torch::jit::toGraphFunction(*function);
    const auto graph = callee.graph();  // functions that it calls are already inlined in it
    if (!graph::any_node(graph->block(), is_cross_entropy)) return;
    node->removeInput(0);
    torch::jit::inlineCallTo(node, &callee, graph.get());
  });
}

void fuse_cross_entropy(Node* node) {
  const bool in_float = remove_cast(node);
  torch::jit::WithInsertPoint before(node);
  graph::replace_node(node, kCrossEntropyOperator, {node->owningGraph()->insertConstant(in_float)});
}

}  // namespace dslaunch::runtime::model::layers
