#include "runtime/model/layers/operator_replacement.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/cast_of_logits.hpp"
#include "runtime/model/layers/fused_operators.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::layers {
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

void layer_norm_and_input_operator(Stack& stack) {
  constexpr size_t kCount = 6;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto [out, input] = fused_layer_norm_and_input(at(0).toTensor(), at(1).toIntVector(), at(2).toOptional<at::Tensor>(),
                                                 at(3).toOptional<at::Tensor>(), at(4).toDouble());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out), std::move(input));
}

GemmOptions options_of(const c10::IValue& sums_bias, const c10::IValue& writes_gradient,
                       const device::GemmCachePtr& gemms) {
  return {.sums_bias = sums_bias.toBool(), .writes_gradient = writes_gradient.toBool(), .gemms = gemms};
}

void linear_operator(Stack& stack, const device::GemmCachePtr& gemms) {
  constexpr size_t kCount = 5;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out =
      fused_linear(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(), options_of(at(3), at(4), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void matmul_operator(Stack& stack, const device::GemmCachePtr& gemms) {
  constexpr size_t kCount = 4;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_matmul(at(0).toTensor(), at(1).toTensor(), options_of(at(2), at(3), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void addmm_operator(Stack& stack, const device::GemmCachePtr& gemms) {
  constexpr size_t kCount = 7;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_addmm(at(0).toTensor(), at(1).toTensor(), at(2).toTensor(), at(3).toScalar(), at(4).toScalar(),
                               options_of(at(5), at(6), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void with_bias_operator(Stack& stack) {
  constexpr size_t kCount = 2;
  at::Tensor out =
      with_bias(torch::jit::peek(stack, 0, kCount).toTensor(), torch::jit::peek(stack, 1, kCount).toTensor());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

// The last four arguments: shape, pieces, kind, dim.
Cut cut_of(const c10::IValue& shape, const c10::IValue& pieces, const c10::IValue& kind, const c10::IValue& dim) {
  Cut cut{static_cast<Cut::Kind>(kind.toInt()), pieces.toIntVector(), dim.toInt()};
  if (!shape.isNone()) cut.shape = shape.toIntVector();
  return cut;
}

void linear_cut_operator(Stack& stack, const device::GemmCachePtr& gemms) {
  constexpr size_t kCount = 9;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto out = fused_linear_cut(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(),
                              cut_of(at(5), at(6), at(7), at(8)), options_of(at(3), at(4), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void addmm_cut_operator(Stack& stack, const device::GemmCachePtr& gemms) {
  constexpr size_t kCount = 11;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto out = fused_addmm_cut(at(0).toTensor(), at(1).toTensor(), at(2).toTensor(), at(3).toScalar(), at(4).toScalar(),
                             cut_of(at(7), at(8), at(9), at(10)), options_of(at(5), at(6), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::cross_entropy(Tensor self, Tensor target, Tensor? weight, int reduction, int "
                          "ignore_index, float label_smoothing, bool in_float) -> Tensor",
                          cross_entropy_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, "
                          "float eps, bool cudnn_enable) -> Tensor",
                          layer_norm_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::layer_norm_and_input(Tensor(a) input, int[] normalized_shape, Tensor? weight, "
                          "Tensor? bias, float eps, bool cudnn_enable) -> (Tensor, Tensor(a))",
                          layer_norm_and_input_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::linear(Tensor input, Tensor weight, Tensor? bias, bool sums_bias, bool "
                          "writes_gradient) -> Tensor",
                          with_gemms<linear_operator>, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::matmul(Tensor self, Tensor other, bool sums_bias, bool writes_gradient) -> Tensor",
                          with_gemms<matmul_operator>, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::addmm(Tensor self, Tensor mat1, Tensor mat2, Scalar beta, Scalar alpha, bool "
                          "sums_bias, bool writes_gradient) -> Tensor",
                          with_gemms<addmm_operator>, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::linear_cut(Tensor input, Tensor weight, Tensor? bias, bool sums_bias, bool "
                          "writes_gradient, int[]? shape, int[] pieces, int kind, int dim) -> Tensor[]",
                          with_gemms<linear_cut_operator>, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::addmm_cut(Tensor self, Tensor mat1, Tensor mat2, Scalar beta, Scalar alpha, bool "
                          "sums_bias, bool writes_gradient, int[]? shape, int[] pieces, int kind, int dim) -> Tensor[]",
                          with_gemms<addmm_cut_operator>, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::with_bias(Tensor(a) out, Tensor bias) -> Tensor(a)", with_bias_operator,
                          c10::AliasAnalysisKind::FROM_SCHEMA)});

void replace(Node* node, const char* kind, at::ArrayRef<torch::jit::Value*> more = {}) {
  Node* fused = node->owningGraph()->create(c10::Symbol::fromQualString(kind), node->inputs(), /*num_outputs=*/1);
  for (auto* value : more) fused->addInput(value);
  fused->setSourceRange(node->sourceRange());
  fused->output()->copyMetadata(node->output());
  fused->insertBefore(node);
  node->replaceAllUsesWith(fused);
  node->destroy();
}

// One whose second matrix may be a parameter.
bool is_gemm(const Node* node) {
  if (node->kind() == c10::aten::linear) return !is_computed(node->input(1));
  if (node->kind() == c10::aten::matmul) return node->inputs().size() == 2 && !is_computed(node->input(1));
  return node->kind() == c10::aten::addmm && node->inputs().size() == 5 && !is_computed(node->input(2));
}

bool is_replaced_gemm(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return kind == kLinearOperator || kind == kMatmulOperator || kind == kAddmmOperator;
}

void replace_gemm(Node* node, GemmOptions options) {
  const auto kind = node->kind();
  const torch::jit::WithInsertPoint before(node);
  auto& graph = *node->owningGraph();
  replace(node,
          kind == c10::aten::linear   ? kLinearOperator
          : kind == c10::aten::matmul ? kMatmulOperator
                                      : kAddmmOperator,
          {graph.insertConstant(options.sums_bias), graph.insertConstant(options.writes_gradient)});
}

bool is_cross_entropy(const Node* node) {
  return node->kind() == c10::aten::cross_entropy_loss;
}

}  // namespace

bool is_computed(const torch::jit::Value* value) {
  const Node* node = value->node();
  const std::string_view kind = node->kind().toQualString();
  for (const char* view : {"aten::t", "aten::transpose", "aten::permute", "aten::numpy_T"}) {
    if (kind == view) return is_computed(node->input(0));
  }
  return node->kind().is_aten() || operators::is_ours(node->kind());
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
  replace(node, kCrossEntropyOperator, {node->owningGraph()->insertConstant(in_float)});
}

void fuse_layer_norm(Node* node) {
  replace(node, kLayerNormOperator);
}

void sum_bias_gradient(Node* node) {
  replace_gemm(node, {.sums_bias = true, .writes_gradient = false});
}

void take_weight_gradients(const torch::jit::Module& model, bool writes) {
  graph::for_every_node(model, [writes](Node* node) {
    if (is_gemm(node)) {
      replace_gemm(node, {.sums_bias = false, .writes_gradient = writes});
    } else if (is_replaced_gemm(node) && writes) {
      const torch::jit::WithInsertPoint before(node);
      node->replaceInput(node->inputs().size() - 1, node->owningGraph()->insertConstant(true));
    }
  });
}

}  // namespace dslaunch::runtime::model::layers
