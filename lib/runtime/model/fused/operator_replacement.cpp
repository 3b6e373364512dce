#include "runtime/model/fused/operator_replacement.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "runtime/model/analysis/every_node.hpp"
#include "runtime/model/fused/cast_of_logits.hpp"
#include "runtime/model/fused/fused_operators.hpp"

namespace dslaunch::runtime::model::fused {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Stack;

void cross_entropy_operator(Stack& stack) {
  constexpr size_t kCount = 7;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor loss = fused_cross_entropy(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(),
                                        at(3).toInt(), at(4).toInt(), at(5).toDouble(), at(6).toBool());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(loss));
}

void layer_norm_operator(Stack& stack) {
  constexpr size_t kCount = 6;  // the last argument concerns cuDNN
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_layer_norm(at(0).toTensor(), at(1).toIntVector(), at(2).toOptional<at::Tensor>(),
                                    at(3).toOptional<at::Tensor>(), at(4).toDouble());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void linear_operator(Stack& stack) {
  constexpr size_t kCount = 3;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_linear(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void deferring_linear_operator(Stack& stack) {
  constexpr size_t kCount = 3;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = deferring_linear(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void matmul_operator(Stack& stack) {
  constexpr size_t kCount = 2;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = deferring_matmul(at(0).toTensor(), at(1).toTensor());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void addmm_operator(Stack& stack) {
  constexpr size_t kCount = 5;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out =
      deferring_addmm(at(0).toTensor(), at(1).toTensor(), at(2).toTensor(), at(3).toScalar(), at(4).toScalar());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

constexpr char kCrossEntropy[] = "dslaunch::cross_entropy";
constexpr char kLayerNorm[] = "dslaunch::layer_norm";
constexpr char kLinear[] = "dslaunch::linear";
constexpr char kDeferringLinear[] = "dslaunch::deferring_linear";
constexpr char kMatmul[] = "dslaunch::matmul";
constexpr char kAddmm[] = "dslaunch::addmm";
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::cross_entropy(Tensor self, Tensor target, Tensor? weight, int reduction, int "
                          "ignore_index, float label_smoothing, bool in_float) -> Tensor",
                          cross_entropy_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, "
                          "float eps, bool cudnn_enable) -> Tensor",
                          layer_norm_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::linear(Tensor input, Tensor weight, Tensor? bias) -> Tensor", linear_operator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::deferring_linear(Tensor input, Tensor weight, Tensor? bias) -> Tensor",
                          deferring_linear_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::matmul(Tensor self, Tensor other) -> Tensor", matmul_operator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> "
                          "Tensor",
                          addmm_operator, c10::AliasAnalysisKind::FROM_SCHEMA)});

void replace(Node* node, const char* kind, at::ArrayRef<torch::jit::Value*> more = {}) {
  Node* fused = node->owningGraph()->create(c10::Symbol::fromQualString(kind), node->inputs(), /*num_outputs=*/1);
  for (auto* value : more) fused->addInput(value);
  fused->setSourceRange(node->sourceRange());
  fused->output()->copyMetadata(node->output());
  fused->insertBefore(node);
  node->replaceAllUsesWith(fused);
  node->destroy();
}

bool has_cross_entropy(const Block* block) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == c10::aten::cross_entropy_loss) return true;
    for (const Block* inner : node->blocks()) {
      if (has_cross_entropy(inner)) return true;
    }
  }
  return false;
}

}  // namespace

void inline_cross_entropy(const torch::jit::Module& model) {
  analysis::for_every_node(model, [](Node* node) {
    if (node->kind() != c10::prim::CallFunction) return;
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    if (!function->isGraphFunction()) return;
    auto& callee = torch::jit::toGraphFunction(*function);
    const auto graph = callee.graph();  // functions that it calls are already inlined in it
    if (!has_cross_entropy(graph->block())) return;
    node->removeInput(0);
    torch::jit::inlineCallTo(node, &callee, graph.get());
  });
}

void fuse_cross_entropy(Node* node) {
  const bool in_float = remove_cast(node);
  torch::jit::WithInsertPoint before(node);
  replace(node, kCrossEntropy, {node->owningGraph()->insertConstant(in_float)});
}

void fuse_layer_norm(Node* node) {
  replace(node, kLayerNorm);
}

void fuse_linear(Node* node) {
  replace(node, kLinear);
}

void replace_deferring(const torch::jit::Module& model) {
  analysis::for_every_node(model, [](Node* node) {
    if (node->kind() == c10::aten::linear) {  // kernels.bias_gradient is off
      replace(node, kDeferringLinear);
    } else if (node->kind() == c10::aten::matmul && node->inputs().size() == 2) {
      replace(node, kMatmul);
    } else if (node->kind() == c10::aten::addmm && node->inputs().size() == 5) {
      replace(node, kAddmm);
    }
  });
}

}  // namespace dslaunch::runtime::model::fused
