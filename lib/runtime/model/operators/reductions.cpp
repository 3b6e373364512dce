#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr Row kRows[] = {
    // Sums and extremes.
    {"sum", {.purity = Purity::kPure, .type = TypeRole::kReduction, .lowering = Lowering::kSum}},
    {"mean",
     {.purity = Purity::kPure, .makes_new_tensor = true, .type = TypeRole::kReduction, .lowering = Lowering::kMean}},
    {"amax", {.lowering = Lowering::kMax}},
    {"min max", {.purity = Purity::kPure, .type = TypeRole::kElements, .yields_indices = true}},
    {"kthvalue mode", {.yields_indices = true}},
    {"topk sort", {.type = TypeRole::kElements, .yields_indices = true}},
    {"argmax argmin argsort", {.type = TypeRole::kNoFloat}},
    {"any all", {.purity = Purity::kPure, .type = TypeRole::kNoFloat}},
    {"cumsum", {.purity = Purity::kPure, .type = TypeRole::kReduction}},
    {"cumprod logcumsumexp prod nansum nanmean trace var std var_mean std_mean norm linalg_norm linalg_vector_norm "
     "frobenius_norm dist cdist cosine_similarity",
     {.type = TypeRole::kReduction}},
    {"diff", {.purity = Purity::kPure}},

    // Norms.
    {"layer_norm",
     {.size = SizeRule::kLikeFirst,
      .makes_new_tensor = true,
      .type = TypeRole::kNorm,
      .flops = layer_norm_cost,
      .lowering = Lowering::kLayerNorm,
      .gradient = Gradient::kKernel}},
    {"dslaunch::layer_norm",
     {.size = SizeRule::kLikeFirst,
      .makes_new_tensor = true,
      .lowering = Lowering::kLayerNorm,
      .gradient = Gradient::kKernel}},
    {"rms_norm", {.size = SizeRule::kLikeFirst, .type = TypeRole::kNorm}},
    {"group_norm", {.type = TypeRole::kNorm, .flops = layer_norm_cost}},
    {"native_layer_norm native_group_norm", {.type = TypeRole::kNorm}},
    {"batch_norm", {.size = SizeRule::kLikeFirst, .type = TypeRole::kBatchNorm, .flops = batch_norm_cost}},
    {"instance_norm", {.type = TypeRole::kBatchNorm, .flops = instance_norm_cost}},

    // Softmax and losses.
    {"softmax",
     {.size = SizeRule::kLikeFirst,
      .type = TypeRole::kSoftmax,
      .flops = elementwise_cost,
      .lowering = Lowering::kSoftmax}},
    {"log_softmax", {.type = TypeRole::kSoftmax, .keeps_classes = true}},
    {"_softmax _log_softmax logsumexp", {.type = TypeRole::kSoftmax}},
    {"cross_entropy_loss nll_loss nll_loss_nd",
     {.type = TypeRole::kSoftmax, .index = {.input = 1, .bound = IndexBound::kClasses}}},
    {"nll_loss2d binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss huber_loss "
     "kl_div poisson_nll_loss ctc_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss "
     "multi_margin_loss hinge_embedding_loss soft_margin_loss",
     {.type = TypeRole::kSoftmax}},

    // Pools.
    {"avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
     "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
     {.flops = elementwise_cost}},
};

}  // namespace

Rows reduction_rows() {
  return kRows;
}

}  // namespace dslaunch::runtime::model::operators
