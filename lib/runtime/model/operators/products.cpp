#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr Row kRows[] = {
    // Of matrices.
    {"linear",
     {.size = SizeRule::kLinear,
      .type = TypeRole::kProduct,
      .flops = linear_cost,
      .product = {.factor = 0, .weight = 1, .bias = 2}}},
    {"matmul",
     {.purity = Purity::kPure,
      .type = TypeRole::kProduct,
      .flops = matmul_cost,
      .product = {.factor = 0, .weight = 1}}},
    {"mm bmm", {.purity = Purity::kPure, .type = TypeRole::kProduct, .flops = matmul_cost}},
    {"addmm", {.type = TypeRole::kProduct, .flops = addmm_cost, .product = {.factor = 1, .weight = 2, .bias = 0}}},
    {"baddbmm", {.type = TypeRole::kProduct, .flops = addmm_cost}},
    {"outer einsum", {.purity = Purity::kPure, .type = TypeRole::kProduct}},
    {"mv dot inner addmv addbmm addr tensordot bilinear linalg_matmul linalg_multi_dot chain_matmul _grouped_mm",
     {.type = TypeRole::kProduct}},
    {"dslaunch::linear", {.size = SizeRule::kLinear, .product = {.factor = 0, .weight = 1, .bias = 2}}},
    {"dslaunch::matmul", {.product = {.factor = 0, .weight = 1}}},
    {"dslaunch::addmm", {.product = {.factor = 1, .weight = 2, .bias = 0}}},
    {"dslaunch::linear_cut", {.product = {.factor = 0, .weight = 1, .bias = 2}}},
    {"dslaunch::addmm_cut", {.product = {.factor = 1, .weight = 2, .bias = 0}}},
    {"dslaunch::with_bias", {.lowering = Lowering::kWithBias}},

    // Attention. What backward calls, and what is called where a backend is chosen already, count as well.
    {"scaled_dot_product_attention", {.type = TypeRole::kProduct, .flops = attention_cost}},
    {"_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
     "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable",
     {.flops = attention_cost}},
    {"_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
     "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_fused_attention_overrideable_backward",
     {.flops = attention_backward_cost}},

    // Convolutions.
    {"conv1d conv2d conv3d", {.type = TypeRole::kProduct, .flops = plain_convolution_cost}},
    {"conv_transpose1d conv_transpose2d conv_transpose3d",
     {.type = TypeRole::kProduct, .flops = transposed_convolution_cost}},
    {"convolution _convolution", {.type = TypeRole::kProduct, .flops = any_convolution_cost}},
    {"conv_tbc", {.type = TypeRole::kProduct}},
    {"convolution_backward", {.flops = convolution_backward_cost}},

    // Recurrent layers.
    {"lstm gru rnn_tanh rnn_relu", {.type = TypeRole::kProduct, .flops = recurrent_cost}},
    {"lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell", {.type = TypeRole::kProduct}},
    {"_cudnn_rnn_backward", {.flops = recurrent_backward_cost}},

    // A product with the weight of each channel.
    {"prelu", {.type = TypeRole::kProduct, .flops = elementwise_cost}},
};

}  // namespace

Rows product_rows() {
  return kRows;
}

}  // namespace dslaunch::runtime::model::operators
