#include "runtime/model/dtypes/dtype_operators.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_set>

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using Names = std::unordered_set<std::string_view>;

constexpr std::string_view kAten = "aten::";

// The words of a text.
Names names(std::string_view text) {
  Names out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    out.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

const Names kElements = names(
    "view reshape _unsafe_view _reshape_alias contiguous clone detach slice select narrow index index_select gather "
    "take_along_dim expand expand_as view_as reshape_as repeat repeat_interleave tile transpose permute t movedim "
    "moveaxis swapaxes swapdims squeeze unsqueeze flatten unflatten chunk split split_with_sizes tensor_split unbind "
    "unsafe_chunk unsafe_split cat concat stack hstack vstack roll flip rot90 pad constant_pad_nd masked_select "
    "lift_fresh lift alias diagonal as_strided unfold tril triu dropout feature_dropout zeros_like ones_like "
    "empty_like full_like rand_like new_zeros new_ones new_empty new_full topk sort max min masked_fill where copy "
    "numpy_T __getitem__ fill zero neg broadcast_to meshgrid broadcast_tensors pixel_shuffle pixel_unshuffle scatter "
    "index_put index_copy masked_scatter");

const Names kProducts = names(
    "linear matmul mm bmm mv dot inner outer addmm addmv addbmm baddbmm addr einsum tensordot bilinear conv1d conv2d "
    "conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution conv_tbc "
    "scaled_dot_product_attention _grouped_mm lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
    "rnn_relu_cell linalg_matmul linalg_multi_dot chain_matmul prelu");

const Names kNorms{"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "rms_norm"};

const Names kSoftmax = names(
    "softmax _softmax log_softmax _log_softmax logsumexp log_sigmoid cross_entropy_loss nll_loss nll_loss_nd "
    "nll_loss2d binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss huber_loss "
    "kl_div poisson_nll_loss ctc_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss multi_margin_loss "
    "hinge_embedding_loss soft_margin_loss multilabel_soft_margin_loss");

const Names kReductions = names(
    "pow square mean sum var std var_mean std_mean norm linalg_norm linalg_vector_norm frobenius_norm rsqrt sqrt exp "
    "exp2 expm1 log log2 log10 log1p cumsum cumprod logcumsumexp prod nansum dist cdist erfinv cosine_similarity "
    "nanmean trace");

const Names kWithoutFloats = names(
    "size dim numel len is_floating_point is_complex sym_size stride eq ne lt le gt ge isnan isinf isfinite "
    "logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or argmax argmin argsort nonzero "
    "nonzero_numpy searchsorted bucketize one_hot any all isin __and__ __or__ __xor__ Int Float Bool ScalarImplicit "
    "item device allclose equal is_nonzero multinomial");

const Names kFactories = names(
    "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty "
    "scalar_tensor");

// All operands of these have the type of the first.
const Names kOfOneType = names(
    "index_add index_put index_copy index_reduce scatter scatter_add scatter_reduce masked_scatter put lerp "
    "grid_sampler grid_sampler_2d");

// Operators of which only the first operand carries elements.
const Names kLikeOthers{"expand_as", "view_as", "reshape_as"};

bool is_tensor_list(const Value* value) {
  if (value->type()->kind() != c10::TypeKind::ListType) return false;
  // Lists of optional tensors hold indices.
  return value->type()->expect<c10::ListType>()->getElementType()->isSubtypeOf(*c10::TensorType::get());
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::OptionalType::ofTensor()) && value->type()->kind() != c10::TypeKind::NoneType;
}

TypeRole role_of_cast(const Node* node) {
  if (input_named(node, "other")) return TypeRole::kTypeOf;
  const auto type = type_argument(node);
  if (!type) return TypeRole::kElements;  // only moves to a device
  if (!type->value) return torch::jit::toIValue(node->input(type->input)) ? TypeRole::kElements : TypeRole::kTypeOf;
  return at::isFloatingType(*type->value) ? TypeRole::kCast : TypeRole::kNoFloat;
}

TypeRole role_of_prim(const Node* node) {
  switch (node->kind()) {
    case c10::prim::ListConstruct:
    case c10::prim::ListUnpack:
    case c10::prim::TupleConstruct:
    case c10::prim::TupleUnpack:
    case c10::prim::TupleIndex:
    case c10::prim::DictConstruct:
      return TypeRole::kElements;
    case c10::prim::NumToTensor:
    case c10::prim::dtype:
    case c10::prim::device:
      return TypeRole::kNoFloat;
    default:
      return TypeRole::kArithmetic;
  }
}

}  // namespace

std::string_view operator_name(const Node* node) {
  std::string_view name = node->kind().toQualString();
  if (name.substr(0, kAten.size()) != kAten) return name;
  name.remove_prefix(kAten.size());
  if (works_in_place(node)) name.remove_suffix(1);
  return name;
}

bool works_in_place(const Node* node) {
  const std::string_view name = node->kind().toQualString();
  return name.substr(0, kAten.size()) == kAten && name.back() == '_' && name.substr(name.size() - 2) != "__";
}

bool wants_one_type(const Node* node) {
  return kOfOneType.count(operator_name(node)) > 0;
}

std::optional<size_t> input_named(const Node* node, std::string_view name) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return std::nullopt;
  for (size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
    if (schema->arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

std::optional<TypeArgument> type_argument(const Node* node) {
  const auto input = input_named(node, "dtype");
  if (!input) return std::nullopt;
  const auto constant = torch::jit::toIValue(node->input(*input));
  if (constant && constant->isInt()) return TypeArgument{*input, constant->toScalarType()};
  if (constant && constant->isNone()) return std::nullopt;
  return TypeArgument{*input, std::nullopt};
}

TypeRole type_role(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (kind.substr(0, kAten.size()) != kAten) return role_of_prim(node);
  const auto name = operator_name(node);
  if (name == "to" || name == "_to_copy") return role_of_cast(node);
  if (name == "type_as") return TypeRole::kTypeOf;
  const auto type = type_argument(node);
  const bool makes_integers = type && type->value && !at::isFloatingType(*type->value);
  if (makes_integers || kWithoutFloats.count(name)) return TypeRole::kNoFloat;
  if (type && kFactories.count(name)) return TypeRole::kFactory;
  if (kProducts.count(name)) return TypeRole::kProduct;
  if (kNorms.count(name)) return TypeRole::kNorm;
  if (name == "batch_norm" || name == "instance_norm") return TypeRole::kBatchNorm;
  if (name == "embedding" || name == "embedding_bag") return TypeRole::kTable;
  if (kSoftmax.count(name)) return TypeRole::kSoftmax;
  if (kReductions.count(name)) return TypeRole::kReduction;
  return kElements.count(name) ? TypeRole::kElements : TypeRole::kArithmetic;
}

std::vector<Operand> operands_of(Node* node) {
  std::vector<Operand> out;
  const bool only_first = kLikeOthers.count(operator_name(node)) > 0;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    Value* input = node->input(i);
    if (is_tensor_list(input) && input->node()->kind() == c10::prim::ListConstruct) {
      for (size_t j = 0; j < input->node()->inputs().size(); ++j) out.push_back({input->node(), j});
    } else if (is_tensor(input) || is_tensor_list(input)) {
      out.push_back({node, i});
    }
    if (only_first && i == 0) break;
  }
  return out;
}

}  // namespace dslaunch::runtime::model::dtypes
