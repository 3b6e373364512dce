#include "runtime/model/layers/linear.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "runtime/model/layers/fp8_linear.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/gemm_operands.hpp"
#include "runtime/model/layers/layer_functions.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"
#include "runtime/model/torchscript/units/recomputed_tensor.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using units::as_rows;
using units::WeightLayout;

// With the GEMM's measured algorithm, where it has one; undefined elsewhere.
at::Tensor chosen(const device::GemmProblem& gemm, at::IntArrayRef sizes, const device::GemmCachePtr& gemms) {
  if (at::GradMode::is_enabled() || !gemms || !device::is_tunable(gemm)) return {};
  at::Tensor out = at::empty({gemm.left.size(0), gemm.right.size(1)}, gemm.left.options());
  device::multiply(gemm, out, gemms);
  return out.view(sizes);
}

// As PyTorch's operators compute it where weights require gradients. They would not fold the dims of `input` here,
// where the transposed weight has no history.
at::Tensor output_of(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     WeightLayout layout, const device::GemmCachePtr& gemms) {
  const bool is_out_in = layout == WeightLayout::kOutIn, is_folded = input.dim() == 2 || input.is_contiguous();
  const at::Tensor matrix = is_out_in ? weight.t() : weight;
  auto sizes = input.sizes().vec();
  sizes.back() = matrix.size(1);
  const at::Tensor rows = as_rows(input);
  if (at::Tensor out = chosen({rows, matrix, bias}, sizes, gemms); out.defined()) return out;
  if (is_folded && !is_out_in && !bias) return at::matmul(input, weight);
  if (input.dim() == 2 && !is_out_in) return at::addmm(*bias, input, weight);
  if (is_folded) return at::linear(input, is_out_in ? weight : weight.t(), bias);
  at::Tensor out = rows.mm(matrix).view(sizes);
  return bias ? out.add_(*bias) : out;
}

bool lies_by_columns(const at::Tensor& input) {
  return input.dim() == 2 && input.stride(0) == 1 && input.stride(1) == input.size(0);
}

// In the memory order of the input, as autograd does.
at::Tensor input_gradient(const at::Tensor& rows, at::IntArrayRef sizes, bool is_by_columns, const at::Tensor& weight,
                          WeightLayout layout, const device::GemmCachePtr& gemms) {
  const at::Tensor matrix = layout == WeightLayout::kOutIn ? weight : weight.t();
  if (is_by_columns) return matrix.t().mm(rows.t()).t();
  const at::Tensor out = chosen({rows, matrix}, sizes, gemms);
  return out.defined() ? out : rows.mm(matrix).view(sizes);
}

class Gemm : public torch::autograd::Function<Gemm> {
 public:
  // `shape`: of the output, empty: as it is computed; `widths`: of its pieces along the last dim, empty: it stays
  // whole.
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, bool is_out_in, GemmOptions options,
                               const std::vector<int64_t>& shape, const std::vector<int64_t>& widths) {
    const auto recomputed = units::RecomputedTensor::of(input);
    if (recomputed) context->saved_data["input"] = c10::IValue::make_capsule(recomputed);
    variable_list kept{weight};
    if (!recomputed) kept.push_back(input);
    context->saved_data["sizes"] = input.sizes();
    context->saved_data["is_by_columns"] = lies_by_columns(input);
    context->saved_data["is_out_in"] = is_out_in;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["sums_bias"] = options.sums_bias;
    context->saved_data["writes_gradient"] = options.writes_gradient;
    context->saved_data["postpones_gradient"] = tensor_parallel::is_reduced_in_backward(input);
    keep_gemms(*context, options.gemms);
    const at::AutoDispatchBelowADInplaceOrView plain;  // else the output would be a view that must not be written to
    const auto layout = is_out_in ? WeightLayout::kOutIn : WeightLayout::kInOut;
    const at::Tensor out = output_of(input, weight, bias, layout, options.gemms);
    context->save_for_backward(std::move(kept));
    return pieces_of(out, shape, widths);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[0];
    const auto layout = context->saved_data["is_out_in"].toBool() ? WeightLayout::kOutIn : WeightLayout::kInOut;
    const bool wants_bias = context->saved_data["has_bias"].toBool() && context->needs_input_grad(2);
    const bool sums_bias = context->saved_data["sums_bias"].toBool();
    const auto gemms = kept_gemms(*context);
    const auto [rows, sums] = join(upstream, wants_bias && sums_bias);
    variable_list gradients(7);
    if (context->needs_input_grad(0)) {
      gradients[0] = input_gradient(rows, context->saved_data["sizes"].toIntVector(),
                                    context->saved_data["is_by_columns"].toBool(), weight, layout, gemms);
    }
    if (context->needs_input_grad(1)) {
      const units::WeightGemm gemm(saved.size() == 2 ? saved[1] : recomputed_input(*context), rows, layout, gemms);
      gradients[1] = weight_gradient(gemm, weight, context->saved_data["writes_gradient"].toBool(),
                                     context->saved_data["postpones_gradient"].toBool());
    }
    if (wants_bias) gradients[2] = sums_bias ? sums : rows.sum(0);
    return gradients;
  }

 private:
  static at::Tensor recomputed_input(AutogradContext& context) {
    return c10::static_intrusive_pointer_cast<units::RecomputedTensor>(context.saved_data["input"].toCapsule())
        ->value();
  }
};

bool is_in_training(const at::Tensor& input, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && weight.requires_grad() &&
         !at::autocast::is_autocast_enabled(input.device().type());
}

// Empty where PyTorch's operator computes the same, backward included.
variable_list gemm(const at::Tensor& input, const at::Tensor& given, const at::Tensor* bias, WeightLayout layout,
                   GemmOptions options, const std::vector<int64_t>& shape = {},
                   const std::vector<int64_t>& widths = {}) {
  if (!is_in_training(input, given) && !options.fp8) return {};
  const Weight weight = weight_of(given, layout);
  if (!fits(input, weight, bias)) return {};
  const auto given_bias = bias != nullptr ? std::optional(*bias) : std::nullopt;
  if (options.fp8 && computes_in_fp8(input, weight)) {
    return fp8_linears(input, {{weight, given_bias}}, options, {shape, widths});
  }
  if (!is_in_training(input, given)) return {};
  options.sums_bias = options.sums_bias && has_bias_kernel(input, bias);
  const bool takes_gradient = weight.gathered && (options.writes_gradient || weight.gathered->call->may_defer());
  if (!options.sums_bias && !takes_gradient) return {};
  return Gemm::apply(input, weight.tensor, given_bias, weight.layout == WeightLayout::kOutIn, options, shape, widths);
}

bool is_plain_sum(const at::Tensor& input, const at::Scalar& beta, const at::Scalar& alpha) {
  return beta.equal(1) && alpha.equal(1) && input.dim() == 2;
}

at::Tensor whole(const variable_list& gemms) {
  return gemms.empty() ? at::Tensor() : gemms[0];
}

// Of pieces along the last dim, which has so many columns; empty: the operators say what is wrong.
std::vector<int64_t> widths_of(const Cut& cut, int64_t columns) {
  if (cut.kind == Cut::Kind::kSizes) {
    int64_t sum = 0;
    for (const int64_t piece : cut.pieces) sum += piece;
    const bool is_whole =
        sum == columns && std::all_of(cut.pieces.begin(), cut.pieces.end(), [](int64_t piece) { return piece > 0; });
    return is_whole ? cut.pieces : std::vector<int64_t>();
  }
  int64_t each = cut.pieces.at(0);
  if (each <= 0) return {};
  if (cut.kind == Cut::Kind::kChunks) each = (columns + each - 1) / each;
  std::vector<int64_t> out;
  for (int64_t begin = 0; begin < columns; begin += each) out.push_back(std::min(each, columns - begin));
  return out;
}

// Empty if the cut is along another dim, or the GEMM has no backward of ours.
variable_list cut_gemm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor* bias, WeightLayout layout,
                       const Cut& cut, GemmOptions options) {
  const bool sums_bias = input.is_cpu() ? bias != nullptr : options.sums_bias && has_bias_kernel(input, bias);
  if (!sums_bias || weight.dim() != 2) return {};
  const int64_t columns = weight.size(layout == WeightLayout::kOutIn ? 0 : 1);
  const auto rank = static_cast<int64_t>(cut.shape ? cut.shape->size() : static_cast<size_t>(input.dim()));
  if (cut.dim != -1 && cut.dim != rank - 1) return {};
  if (cut.shape && (cut.shape->empty() || cut.shape->back() != columns)) return {};
  const auto widths = widths_of(cut, columns);
  if (widths.size() < 2) return {};
  return gemm(input, weight, bias, layout, options, cut.shape.value_or(std::vector<int64_t>()), widths);
}

std::vector<at::Tensor> apply(const Cut& cut, const at::Tensor& output) {
  const at::Tensor out = cut.shape ? output.view(*cut.shape) : output;
  switch (cut.kind) {
    case Cut::Kind::kSize:
      return out.split(cut.pieces.at(0), cut.dim);
    case Cut::Kind::kSizes:
      return out.split_with_sizes(cut.pieces, cut.dim);
    case Cut::Kind::kChunks:
      return out.chunk(cut.pieces.at(0), cut.dim);
  }
  return {};
}

// The gradient of a bias apart from that of its GEMM, so that a fused region that computes the GEMM's gradient sums it,
// too (fusion/bias_gradients.cpp).
class WithBias : public torch::autograd::Function<WithBias> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& out, const at::Tensor& bias) {
    context->saved_data["columns"] = bias.numel();
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const at::Tensor rows = upstream[0].reshape({-1, context->saved_data["columns"].toInt()});
    const bool has_kernel = rows.is_cuda() && rows.numel() > 0 && is_kernel_type(rows.scalar_type());
    at::Tensor sums;
    if (context->needs_input_grad(1)) sums = has_kernel ? sum_columns(rows) : rows.sum(0);
    return {std::move(upstream[0]), std::move(sums)};
  }
};

}  // namespace

at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        GemmOptions options) {
  const at::Tensor* given = bias && bias->defined() ? &*bias : nullptr;
  at::Tensor out = whole(gemm(input, weight, given, WeightLayout::kOutIn, options));
  return out.defined() ? out : at::linear(input, weight, bias);
}

at::Tensor fused_matmul(const at::Tensor& input, const at::Tensor& weight, GemmOptions options) {
  at::Tensor out = whole(gemm(input, weight, nullptr, WeightLayout::kInOut, options));
  return out.defined() ? out : at::matmul(input, weight);
}

at::Tensor fused_addmm(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                       const at::Scalar& beta, const at::Scalar& alpha, GemmOptions options) {
  const bool is_plain = is_plain_sum(input, beta, alpha);
  at::Tensor out = is_plain ? whole(gemm(input, weight, &bias, WeightLayout::kInOut, options)) : at::Tensor();
  return out.defined() ? out : at::addmm(bias, input, weight, beta, alpha);
}

std::vector<at::Tensor> fused_linear_cut(const at::Tensor& input, const at::Tensor& weight,
                                         const std::optional<at::Tensor>& bias, const Cut& cut, GemmOptions options) {
  const at::Tensor* given = bias && bias->defined() ? &*bias : nullptr;
  auto pieces = cut_gemm(input, weight, given, WeightLayout::kOutIn, cut, options);
  return pieces.empty() ? apply(cut, fused_linear(input, weight, bias, options)) : pieces;
}

std::vector<at::Tensor> fused_addmm_cut(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                                        const at::Scalar& beta, const at::Scalar& alpha, const Cut& cut,
                                        GemmOptions options) {
  variable_list pieces;
  if (is_plain_sum(input, beta, alpha)) {
    pieces = cut_gemm(input, weight, &bias, WeightLayout::kInOut, cut, options);
  }
  return pieces.empty() ? apply(cut, fused_addmm(bias, input, weight, beta, alpha, options)) : pieces;
}

at::Tensor with_bias(const at::Tensor& out, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && bias.requires_grad() ? WithBias::apply(out, bias) : out;
}

}  // namespace dslaunch::runtime::model::layers
