#include "runtime/model/layers/gemm_operands.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "runtime/device/device_module.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {

using torch::autograd::variable_list;
using units::as_rows;
using units::WeightLayout;

Weight weight_of(const at::Tensor& tensor, WeightLayout layout) {
  if (auto gathered = units::gathered_parameter(tensor)) return {tensor, layout, std::move(gathered)};
  if (tensor.dim() != 2 || !tensor.is_view()) return {tensor, layout, {}};
  const at::Tensor base(tensor._base());
  const bool is_transposed = base.dim() == 2 && base.is_contiguous() && tensor.sizes() == base.t().sizes() &&
                             tensor.strides() == base.t().strides() && tensor.storage_offset() == base.storage_offset();
  if (!is_transposed) return {tensor, layout, {}};
  auto gathered = units::gathered_parameter(base);
  if (!gathered) return {tensor, layout, {}};
  return {base, layout == WeightLayout::kOutIn ? WeightLayout::kInOut : WeightLayout::kOutIn, std::move(gathered)};
}

bool fits(const at::Tensor& input, const Weight& weight, const at::Tensor* bias) {
  if (input.dim() < 2 || weight.tensor.dim() != 2 || input.numel() == 0 || weight.tensor.numel() == 0) return false;
  const auto type = input.scalar_type();
  const bool is_out_in = weight.layout == WeightLayout::kOutIn;
  if (!at::isFloatingType(type) || weight.tensor.scalar_type() != type || weight.tensor.device() != input.device() ||
      input.layout() != at::kStrided || input.size(-1) != weight.tensor.size(is_out_in ? 1 : 0)) {
    return false;
  }
  return bias == nullptr || (bias->scalar_type() == type && bias->device() == input.device() && bias->dim() == 1 &&
                             bias->size(0) == weight.tensor.size(is_out_in ? 0 : 1));
}

at::Tensor weight_gradient(const units::WeightGemm& gemm, const at::Tensor& weight, bool may_write, bool postpones) {
  const auto gathered = units::gathered_parameter(weight);
  if (!gathered) return gemm.compute();
  const bool is_taken = postpones ? units::postpone_gemm(*gathered, gemm, may_write)
                                  : gathered->call->take_gemm(gathered->index, gemm, may_write);
  return is_taken ? at::Tensor() : gemm.compute();
}

bool has_bias_kernel(const at::Tensor& input, const at::Tensor* bias) {
  return bias != nullptr && bias->requires_grad() && input.is_cuda() && is_kernel_type(input.scalar_type());
}

at::Tensor sum_columns(const at::Tensor& rows) {
  if (at::GradMode::is_enabled()) return rows.sum(0);
  at::Tensor sums = at::empty({rows.size(1)}, rows.options());
  device::module().layers.column_sums(rows.contiguous(), sums);
  return sums;
}

Joined join(const variable_list& pieces, bool sums) {
  if (pieces.size() == 1) {
    const at::Tensor rows = as_rows(pieces[0]);
    return {rows, sums ? sum_columns(rows) : at::Tensor()};
  }
  std::vector<at::Tensor> parts;
  for (const auto& piece : pieces) parts.push_back(as_rows(piece));
  if (sums && !at::GradMode::is_enabled()) {
    int64_t columns = 0;
    for (const auto& part : parts) columns += part.size(1);
    Joined out{at::empty({parts[0].size(0), columns}, parts[0].options()), at::empty({columns}, parts[0].options())};
    if (device::module().layers.join_columns(parts, out.rows, out.sums)) return out;
  }
  const at::Tensor rows = at::cat(parts, 1);
  return {rows, sums ? sum_columns(rows) : at::Tensor()};
}

variable_list pieces_of(const at::Tensor& out, const std::vector<int64_t>& shape, const std::vector<int64_t>& widths) {
  if (widths.empty()) return {out};
  return (shape.empty() ? out : out.view(shape)).split_with_sizes(widths, -1);
}

}  // namespace dslaunch::runtime::model::layers
