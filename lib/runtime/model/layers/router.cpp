#include "runtime/model/layers/router.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/device/device_module.hpp"
#include "runtime/model/graph/node_checks.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using graph::is;
using graph::number;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Value;

ExpertChoice choice_of_operators(const at::Tensor& logits, int64_t choices, bool normalizes) {
  auto [weights, experts] = at::softmax(logits, -1, at::kFloat).topk(choices, -1);
  if (normalizes) weights = weights / weights.sum(-1, true);
  return {std::move(weights), std::move(experts)};
}

class Router : public torch::autograd::Function<Router> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& logits, int64_t choices, bool normalizes) {
    auto sizes = logits.sizes().vec();
    sizes.back() = choices;
    at::Tensor weights = at::empty(sizes, logits.options().dtype(at::kFloat));
    at::Tensor experts = at::empty(sizes, logits.options().dtype(at::kLong));
    device::module().layers.expert_choice(logits, normalizes, weights, experts);
    context->save_for_backward({logits, experts});  // not the weights, to which the model may write
    context->saved_data["normalizes"] = normalizes;
    context->mark_non_differentiable({experts});
    return {std::move(weights), std::move(experts)};
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &experts = saved[1];
    const bool normalizes = context->saved_data["normalizes"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto again = choice_of_operators(logits, experts.size(-1), normalizes);
      auto found = torch::autograd::grad({again.weights}, {logits}, {upstream[0]}, true, /*create_graph=*/true);
      return {std::move(found[0]), {}, {}};
    }
    at::Tensor gradient = at::empty_like(logits);
    device::module().layers.expert_choice_gradient(logits, normalizes, experts, upstream[0].contiguous(), gradient);
    return {std::move(gradient), {}, {}};
  }
};

void choice_operator(torch::jit::Stack& stack) {
  const bool normalizes = torch::jit::pop(stack).toBool();
  const int64_t choices = torch::jit::pop(stack).toInt();
  const at::Tensor logits = torch::jit::pop(stack).toTensor();
  auto choice = choose_experts(logits, choices, normalizes);
  torch::jit::push(stack, std::move(choice.weights), std::move(choice.experts));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::expert_choice(Tensor logits, int choices, bool normalizes) -> (Tensor, Tensor)",
                          choice_operator, c10::AliasAnalysisKind::FROM_SCHEMA)});

// The logits of a softmax over the last dim in fp32 that `topk` alone reads; null: it is another. `cast`: the cast
// before it, or null.
Value* logits_of(Node* softmax, Node*& cast) {
  constexpr auto kFloat = static_cast<int64_t>(at::kFloat);
  if (!is(softmax, "aten::softmax") || number(softmax->input(1)) != -1 || softmax->output()->uses().size() != 1) {
    return nullptr;
  }
  if (number(softmax->input(2)) == kFloat) return softmax->input(0);
  Node* before = softmax->input(0)->node();
  const bool is_cast = is(before, "aten::to") && number(before->input(1)) == kFloat &&
                       before->output()->uses().size() == 1 && before->owningBlock() == softmax->owningBlock();
  if (!is_cast || !graph::is_none(softmax->input(2))) return nullptr;
  cast = before;
  return before->input(0);
}

bool sums_last_dim(const Node* node) {
  const auto dims = graph::elements(node->input(1));
  const auto constant = torch::jit::toIValue(node->input(1));
  return ((dims.size() == 1 && number(dims[0]) == -1) ||
          (constant && constant->isIntList() && constant->toIntVector() == std::vector<int64_t>{-1})) &&
         graph::flag(node->input(2)) == true && graph::is_none(node->input(3));
}

// Of weights, if their sum and their division by it are all that reads them; else null.
Node* division_of(const Value* weights) {
  if (weights->uses().size() != 2) return nullptr;
  Node *sum = weights->uses()[0].user, *division = weights->uses()[1].user;
  if (!is(sum, "aten::sum")) std::swap(sum, division);
  const bool divides = is(division, "aten::div") || is(division, "aten::div_");
  const bool is_it = is(sum, "aten::sum") && sum->inputs().size() == 4 && sums_last_dim(sum) && divides &&
                     division->inputs().size() == 2 && division->input(0) == weights &&
                     division->input(1) == sum->output() && sum->output()->uses().size() == 1 &&
                     division->owningBlock() == weights->node()->owningBlock() &&
                     sum->owningBlock() == weights->node()->owningBlock();
  return is_it ? division : nullptr;
}

bool fuse_router(Node* topk) {
  if (!is(topk, "aten::topk") || number(topk->input(2)) != -1 || graph::flag(topk->input(3)) != true ||
      graph::flag(topk->input(4)) != true) {
    return false;
  }
  Node *softmax = topk->input(0)->node(), *cast = nullptr;
  if (softmax->owningBlock() != topk->owningBlock()) return false;
  Value* logits = logits_of(softmax, cast);
  Node* division = division_of(topk->output(0));
  if (logits == nullptr) return false;
  const torch::jit::WithInsertPoint before(topk);
  auto& graph = *topk->owningGraph();
  Node* ours = graph.create(c10::Symbol::fromQualString("dslaunch::expert_choice"),
                            {logits, topk->input(1), graph.insertConstant(division != nullptr)}, 2);
  ours->setSourceRange(topk->sourceRange());
  ours->insertBefore(topk);
  for (size_t i = 0; i < 2; ++i) ours->output(i)->copyMetadata(topk->output(i));
  topk->output(1)->replaceAllUsesWith(ours->output(1));
  if (division != nullptr) {
    Node* sum = division->input(1)->node();
    division->output()->replaceAllUsesWith(ours->output(0));
    division->destroy();
    sum->destroy();
  } else {
    topk->output(0)->replaceAllUsesWith(ours->output(0));
  }
  topk->destroy();
  softmax->destroy();
  if (cast != nullptr) cast->destroy();
  return true;
}

}  // namespace

ExpertChoice choose_experts(const at::Tensor& logits, int64_t choices, bool normalizes) {
  const bool has_kernel = logits.is_cuda() && is_kernel_type(logits.scalar_type()) && logits.dim() > 0 &&
                          logits.numel() > 0 && device::module().layers.expert_choice_fits(logits.size(-1), choices);
  if (!has_kernel) return choice_of_operators(logits, choices, normalizes);
  auto found = Router::apply(logits.contiguous(), choices, normalizes);
  return {std::move(found[0]), std::move(found[1])};
}

int fuse_routers(const torch::jit::Module& model) {
  std::vector<Node*> found;
  graph::for_every_node(model, [&](Node* node) {
    if (is(node, "aten::topk")) found.push_back(node);
  });
  return static_cast<int>(std::count_if(found.begin(), found.end(), fuse_router));
}

}  // namespace dslaunch::runtime::model::layers
