#include "runtime/model/layers/fp8_linear.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/layers/fp8_gemms.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/torchscript/units/recomputed_tensor.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using units::as_rows;
using units::WeightLayout;

constexpr int64_t kNone = -1;

void add(variable_list& kept, const device::Fp8Matrix& matrix) {
  kept.insert(kept.end(), {matrix.values, matrix.inverse_scales});
}

bool any_trained(at::TensorList weights) {
  return std::any_of(weights.begin(), weights.end(), [](const at::Tensor& weight) { return weight.requires_grad(); });
}

at::Tensor output_of(const at::Tensor& input, const device::Fp8Matrix& rows, const device::Fp8Matrix& weight,
                     const at::Tensor& bias, const device::GemmCachePtr& gemms) {
  auto sizes = input.sizes().vec();
  sizes.back() = weight.values.size(0);
  const auto added = bias.defined() ? std::optional(bias) : std::nullopt;
  return device::multiply({rows, weight, added, /*fast=*/true}, gemms).view(sizes);
}

// The input in fp8 for the outputs. `kept`: gets what the gradients of weights read of it.
device::Fp8Matrix cast_input(const Fp8Gemms& gemms, const at::Tensor& input, bool keeps, variable_list& kept) {
  auto [plain, transposed] = gemms.input(as_rows(input), keeps);
  if (keeps && gemms.has_weight_gradient()) add(kept, transposed);
  if (keeps && !gemms.has_weight_gradient()) kept.push_back(input);
  return plain;
}

// What a forward has saved: the weights; of the input nothing, itself or its transposed cast; for each weight its
// transposed cast, or nothing.
class Saved {
 public:
  explicit Saved(AutogradContext& context)
      : context_(context),
        tensors_(context.get_saved_variables()),
        count_(static_cast<size_t>(context.saved_data["layers"].toInt())),
        layout_(context.saved_data["is_out_in"].toBool() ? WeightLayout::kOutIn : WeightLayout::kInOut),
        fp8_(static_cast<config::Fp8Recipe>(context.saved_data["recipe"].toInt())),
        gemms_(kept_gemms(context)) {}

  size_t count() const { return count_; }
  const Fp8Gemms& fp8() const { return fp8_; }
  const device::GemmCachePtr& gemms() const { return gemms_; }
  const at::Tensor& weight(size_t i) const { return tensors_[i]; }

  // As the input's gradient reads it.
  device::Fp8Matrix factor(size_t i) const {
    if (!keeps_weights()) return fp8_.weight(weight(i), layout_, /*for_output=*/false, /*for_input=*/true).transposed;
    const size_t first = tensors_.size() - 2 * (count_ - i);
    return {tensors_[first], tensors_[first + 1]};
  }

  units::WeightGemm weight_gemm(const at::Tensor& upstream, device::Fp8Matrix transposed) {
    if (!fp8_.has_weight_gradient()) return {input(), upstream, layout_, gemms_};
    if (!input_.values.defined()) input_ = input_in_fp8();
    return {input_, std::move(transposed), layout_, gemms_};
  }

 private:
  bool keeps_weights() const { return context_.saved_data["keeps_weights"].toBool(); }
  size_t of_input() const { return tensors_.size() - (keeps_weights() ? 3 : 1) * count_; }

  at::Tensor input() const {
    if (of_input() > 0) return tensors_[count_];
    return c10::static_intrusive_pointer_cast<units::RecomputedTensor>(context_.saved_data["input"].toCapsule())
        ->value();
  }

  device::Fp8Matrix input_in_fp8() const {
    if (of_input() == 2) return {tensors_[count_], tensors_[count_ + 1]};
    return fp8_.input(as_rows(input()), /*for_weight=*/true).transposed;
  }

  AutogradContext& context_;
  const variable_list tensors_;
  const size_t count_;
  const WeightLayout layout_;
  const Fp8Gemms fp8_;
  const device::GemmCachePtr gemms_;
  device::Fp8Matrix input_;  // as gradients of weights read it, once one has
};

class Fp8Linears : public torch::autograd::Function<Fp8Linears> {
 public:
  // `bias_of`: for each weight its place among the biases, or kNone.
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::TensorList& weights,
                               const at::TensorList& biases, const std::vector<int64_t>& bias_of, bool is_out_in,
                               const GemmOptions& options, const Pieces& pieces) {
    const auto recomputed = units::RecomputedTensor::of(input);
    if (recomputed) context->saved_data["input"] = c10::IValue::make_capsule(recomputed);
    const bool keeps_weights = options.keeps_fp8_weights && input.requires_grad();
    context->saved_data["sizes"] = input.sizes();
    context->saved_data["layers"] = static_cast<int64_t>(weights.size());
    context->saved_data["bias_of"] = bias_of;
    context->saved_data["is_out_in"] = is_out_in;
    context->saved_data["recipe"] = static_cast<int64_t>(*options.fp8);
    context->saved_data["keeps_weights"] = keeps_weights;
    context->saved_data["sums_bias"] = options.sums_bias;
    context->saved_data["writes_gradient"] = options.writes_gradient;
    keep_gemms(*context, options.gemms);
    const at::AutoDispatchBelowADInplaceOrView plain;  // else outputs would be views that must not be written to
    const Fp8Gemms fp8(*options.fp8);
    variable_list kept(weights.begin(), weights.end()), outputs;
    const auto rows = cast_input(fp8, input, any_trained(weights) && !recomputed, kept);
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto weight = fp8.weight(weights[i], is_out_in ? WeightLayout::kOutIn : WeightLayout::kInOut,
                                     /*for_output=*/true, /*for_input=*/keeps_weights);
      if (keeps_weights) add(kept, weight.transposed);
      const at::Tensor bias = bias_of[i] == kNone ? at::Tensor() : biases[static_cast<size_t>(bias_of[i])];
      outputs.push_back(output_of(input, rows, weight.plain, bias, options.gemms));
    }
    context->save_for_backward(std::move(kept));
    return pieces.widths.empty() ? outputs : pieces_of(outputs[0], pieces.shape, pieces.widths);
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    if (at::GradMode::is_enabled()) {
      throw UserError(ExitCode::kBadInput,
                      "gradients of gradients: linear layers in fp8 have none, since rounding has no derivative; set "
                      "fp8.enabled to false");
    }
    Saved saved(*context);
    const size_t count = saved.count();
    const auto bias_of = context->saved_data["bias_of"].toIntVector();
    const bool may_sum_bias = context->saved_data["sums_bias"].toBool(), wants_input = context->needs_input_grad(0);
    variable_list gradients(kNumOthers + 2 * count);  // more than there are inputs: undefined
    for (size_t i = count; i-- > 0;) {                // the order in which autograd adds the parts of separate layers
      const size_t bias = 1 + count + static_cast<size_t>(std::max<int64_t>(bias_of[i], 0));
      const bool wants_bias = bias_of[i] != kNone && context->needs_input_grad(bias);
      const bool sums_bias = wants_bias && may_sum_bias;
      const auto [rows, sums] = join(count == 1 ? upstream : variable_list{upstream[i]}, sums_bias);
      const bool wants_weight = context->needs_input_grad(1 + i);
      auto factors = saved.fp8().upstream(rows, wants_input, wants_weight);
      if (wants_input) add_input_gradient({factors.plain, saved.factor(i)}, saved.gemms(), gradients[0]);
      if (wants_weight) {
        gradients[1 + i] = weight_gradient(saved.weight_gemm(rows, std::move(factors.transposed)), saved.weight(i),
                                           context->saved_data["writes_gradient"].toBool(), /*postpones=*/false);
      }
      if (wants_bias) gradients[bias] = sums_bias ? sums : rows.sum(0);
    }
    if (gradients[0].defined()) gradients[0] = gradients[0].view(context->saved_data["sizes"].toIntVector());
    return gradients;
  }

 private:
  static constexpr size_t kNumOthers = 5;  // arguments beside weights and biases

  static void add_input_gradient(const device::Fp8Gemm& gemm, const device::GemmCachePtr& gemms, at::Tensor& sum) {
    if (sum.defined()) return device::multiply(gemm, sum, /*adds=*/true, gemms);
    sum = device::multiply(gemm, gemms);
  }
};

}  // namespace

bool computes_in_fp8(const at::Tensor& input, const Weight& weight) {
  constexpr int64_t kAlignment = 16;  // of a GPU's GEMMs
  return input.scalar_type() == at::kBFloat16 && weight.tensor.size(0) % kAlignment == 0 &&
         weight.tensor.size(1) % kAlignment == 0 && !at::autocast::is_autocast_enabled(input.device().type());
}

variable_list fp8_linears(const at::Tensor& input, const std::vector<Fp8Layer>& layers, const GemmOptions& options,
                          const Pieces& pieces) {
  std::vector<at::Tensor> weights, biases;
  std::vector<int64_t> bias_of;
  GemmOptions own = options;
  for (const auto& [weight, bias] : layers) {
    weights.push_back(weight.tensor);
    bias_of.push_back(bias ? std::ssize(biases) : kNone);
    if (bias) biases.push_back(*bias);
    own.sums_bias = own.sums_bias && (!bias || !bias->requires_grad() || has_bias_kernel(input, &*bias));
  }
  const auto layout = layers[0].weight.layout;
  if (at::GradMode::is_enabled()) {
    return Fp8Linears::apply(input, at::TensorList(weights), at::TensorList(biases), bias_of,
                             layout == WeightLayout::kOutIn, own, pieces);
  }
  const Fp8Gemms fp8(*options.fp8);
  variable_list outputs, kept;
  const auto rows = cast_input(fp8, input, /*keeps=*/false, kept);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto weight = fp8.weight(weights[i], layout, /*for_output=*/true, /*for_input=*/false);
    outputs.push_back(output_of(input, rows, weight.plain, layers[i].bias.value_or(at::Tensor()), options.gemms));
  }
  return pieces.widths.empty() ? outputs : pieces_of(outputs[0], pieces.shape, pieces.widths);
}

}  // namespace dslaunch::runtime::model::layers
