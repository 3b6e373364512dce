#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr Row kRows[] = {
    // Of matrices.
    {"linear",
     {.size = SizeRule::kLinear,
      .type = TypeRole::kGemm,
      .flops = linear_cost,
      .gemm = {.factor = 0, .weight = 1, .bias = 2}}},
    {"matmul",
     {.purity = Purity::kPure, .type = TypeRole::kGemm, .flops = matmul_cost, .gemm = {.factor = 0, .weight = 1}}},
    {"mm bmm", {.purity = Purity::kPure, .type = TypeRole::kGemm, .flops = matmul_cost}},
    {"_scaled_mm", {.flops = matmul_cost}},
    {"addmm", {.type = TypeRole::kGemm, .flops = addmm_cost, .gemm = {.factor = 1, .weight = 2, .bias = 0}}},
    {"baddbmm", {.type = TypeRole::kGemm, .flops = addmm_cost}},
    {"outer einsum", {.purity = Purity::kPure, .type = TypeRole::kGemm}},
    {"mv dot inner addmv addbmm addr tensordot bilinear linalg_matmul linalg_multi_dot chain_matmul _grouped_mm",
     {.type = TypeRole::kGemm}},
    {"dslaunch::linear", {.size = SizeRule::kLinear, .gemm = {.factor = 0, .weight = 1, .bias = 2}}},
    {"dslaunch::matmul", {.gemm = {.factor = 0, .weight = 1}}},
    {"dslaunch::addmm", {.gemm = {.factor = 1, .weight = 2, .bias = 0}}},
    {"dslaunch::linear_cut", {.gemm = {.factor = 0, .weight = 1, .bias = 2}}},
    {"dslaunch::addmm_cut", {.gemm = {.factor = 1, .weight = 2, .bias = 0}}},
    {"dslaunch::with_bias", {.lowering = Lowering::kWithBias}},

    // Attention. What backward calls, and what is called where a backend is chosen already, count as well.
    {"scaled_dot_product_attention", {.type = TypeRole::kGemm, .flops = attention_cost}},
    {"_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
     "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable",
     {.flops = attention_cost}},
    {"_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
     "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_fused_attention_overrideable_backward",
     {.flops = attention_backward_cost}},

    // Convolutions.
    {"conv1d conv2d conv3d", {.type = TypeRole::kGemm, .flops = plain_convolution_cost}},
    {"conv_transpose1d conv_transpose2d conv_transpose3d",
     {.type = TypeRole::kGemm, .flops = transposed_convolution_cost}},
    {"convolution _convolution", {.type = TypeRole::kGemm, .flops = any_convolution_cost}},
    {"conv_tbc", {.type = TypeRole::kGemm}},
    {"convolution_backward", {.flops = convolution_backward_cost}},

    // Recurrent layers.
    {"lstm gru rnn_tanh rnn_relu", {.type = TypeRole::kGemm, .flops = recurrent_cost}},
    {"lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell", {.type = TypeRole::kGemm}},
    {"_cudnn_rnn_backward", {.flops = recurrent_backward_cost}},

    // Multiplies by the weight of each channel.
    {"prelu", {.type = TypeRole::kGemm, .flops = elementwise_cost}},
};

}  // namespace

Rows gemm_rows() {
  return kRows;
}

}  // namespace dslaunch::runtime::model::operators
