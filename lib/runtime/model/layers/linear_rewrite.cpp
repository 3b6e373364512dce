// The operators of linear.hpp in graphs, and what puts them there.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

GemmOptions options_of(const c10::IValue& sums_bias, const c10::IValue& writes_gradient, const NodeGemms& gemms) {
  return {.sums_bias = sums_bias.toBool(),
          .writes_gradient = writes_gradient.toBool(),
          .gemms = gemms.cache,
          .fp8 = gemms.fp8,
          .keeps_fp8_weights = gemms.keeps_fp8_weights};
}

void linear_operator(Stack& stack, const NodeGemms& gemms) {
  constexpr size_t kCount = 5;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out =
      fused_linear(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(), options_of(at(3), at(4), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void matmul_operator(Stack& stack, const NodeGemms& gemms) {
  constexpr size_t kCount = 4;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_matmul(at(0).toTensor(), at(1).toTensor(), options_of(at(2), at(3), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void addmm_operator(Stack& stack, const NodeGemms& gemms) {
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

void linear_cut_operator(Stack& stack, const NodeGemms& gemms) {
  constexpr size_t kCount = 9;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto out = fused_linear_cut(at(0).toTensor(), at(1).toTensor(), at(2).toOptional<at::Tensor>(),
                              cut_of(at(5), at(6), at(7), at(8)), options_of(at(3), at(4), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void addmm_cut_operator(Stack& stack, const NodeGemms& gemms) {
  constexpr size_t kCount = 11;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto out = fused_addmm_cut(at(0).toTensor(), at(1).toTensor(), at(2).toTensor(), at(3).toScalar(), at(4).toScalar(),
                             cut_of(at(7), at(8), at(9), at(10)), options_of(at(5), at(6), gemms));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::linear(Tensor input, Tensor weight, Tensor? bias, bool sums_bias, bool "
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
  graph::replace_node(node,
                      kind == c10::aten::linear   ? kLinearOperator
                      : kind == c10::aten::matmul ? kMatmulOperator
                                                  : kAddmmOperator,
                      {graph.insertConstant(options.sums_bias), graph.insertConstant(options.writes_gradient)});
}

std::optional<Cut::Kind> kind_of_cut(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (node->inputs().size() != 3) return std::nullopt;
  if (kind == "aten::chunk") return Cut::Kind::kChunks;
  if (kind == "aten::split_with_sizes") return Cut::Kind::kSizes;
  if (kind != "aten::split") return std::nullopt;
  return node->input(1)->type()->kind() == c10::TypeKind::IntType ? Cut::Kind::kSize : Cut::Kind::kSizes;
}

const char* cut_operator_of(const Node* gemm) {
  const std::string_view kind = gemm->kind().toQualString();
  if (kind == kLinearOperator) return kLinearCutOperator;
  return kind == kAddmmOperator ? kAddmmCutOperator : nullptr;
}

// What makes the value, if this is its only use and in the same block.
Node* sole_maker(const Value* value, const Node* user) {
  Node* made = const_cast<Value*>(value)->node();
  return value->uses().size() == 1 && made->owningBlock() == user->owningBlock() ? made : nullptr;
}

bool join(Node* cut, Cut::Kind kind, const graph::Aliases& aliases) {
  Node* made = sole_maker(cut->input(0), cut);
  Node* view = made != nullptr && made->kind() == c10::aten::view ? made : nullptr;
  Node* gemm = view != nullptr ? sole_maker(view->input(0), view) : made;
  const char* fused_kind = gemm == nullptr ? nullptr : cut_operator_of(gemm);
  if (fused_kind == nullptr) return false;
  // The GEMM moves to the cut.
  const auto inputs = gemm->inputs();
  if (std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return aliases.is_written(input); })) {
    return false;
  }
  auto& graph = *cut->owningGraph();
  const torch::jit::WithInsertPoint before(cut);
  Node* fused = graph.create(c10::Symbol::fromQualString(fused_kind), gemm->inputs(), 1);
  fused->copyAttributes(*gemm);
  fused->addInput(view != nullptr ? view->input(1) : graph.insertConstant(c10::IValue()));
  Value* pieces = cut->input(1);
  if (kind != Cut::Kind::kSizes) pieces = graph.insertNode(graph.createList(c10::IntType::get(), {pieces}))->output();
  fused->addInput(pieces);
  fused->addInput(graph.insertConstant(static_cast<int64_t>(kind)));
  fused->addInput(cut->input(2));
  fused->setSourceRange(gemm->sourceRange());
  fused->output()->copyMetadata(cut->output());
  fused->insertBefore(cut);
  cut->replaceAllUsesWith(fused);
  cut->destroy();
  if (view != nullptr) view->destroy();
  gemm->destroy();
  return true;
}

int fuse_linear_cuts(Block* block, const graph::Aliases& aliases) {
  int count = 0;
  graph::for_each_node(block, [&](Node* node) {
    const auto kind = kind_of_cut(node);
    if (kind && join(node, *kind, aliases)) count += 1;
  });
  return count;
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

int fuse_linear_cuts(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) {
    const graph::Aliases aliases(graph->block());
    count += fuse_linear_cuts(graph->block(), aliases);
  }
  return count;
}

}  // namespace dslaunch::runtime::model::layers
