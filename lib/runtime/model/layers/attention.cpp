#include "runtime/model/layers/attention.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <limits>

#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using constants::MaskKind;

void fit_form(const at::Tensor& query, AttentionOptions& options) {
  options.mask = without_repetitions(*options.mask);
  if (!query.is_cuda()) return;
  const auto type = query.scalar_type();
  const auto fit = [type](const at::Tensor& mask) { return fit_mask(mask, type); };
  const bool converts =
      options.converted != nullptr && options.mask->scalar_type() != type && options.mask->scalar_type() != at::kBool;
  options.mask =
      converts ? options.converted->get(*options.mask, -1 - static_cast<int64_t>(type), fit) : fit(*options.mask);
}

void simplify_mask(const at::Tensor& query, const at::Tensor& key, AttentionOptions& options,
                   constants::KnownMasks& masks) {
  if (!options.mask || !options.mask->defined() || options.is_causal) return;
  const at::Tensor& mask = *options.mask;
  const MaskKind kind = masks.kind_of(mask, !device::is_capturing(query.device()));
  if (kind == MaskKind::kOther) return fit_form(query, options);
  // A mask with one row stands for several.
  const bool is_square = mask.size(-2) == query.size(-2) && mask.size(-1) == key.size(-2);
  if (kind == MaskKind::kCausal && !is_square) return fit_form(query, options);
  options.is_causal = kind == MaskKind::kCausal;
  options.mask.reset();
}

// As autocast casts the operands of attention.
at::Tensor as_autocast(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

sdp::SDPBackend choose_kernel(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionOptions& options, bool enable_gqa) {
  return static_cast<sdp::SDPBackend>(at::_fused_sdp_choice(query, key, value, options.mask, options.dropout,
                                                            options.is_causal, options.scale, enable_gqa));
}

bool has_fused_kernel(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const AttentionOptions& options) {
  return choose_kernel(query, key, value, options, /*enable_gqa=*/true) != sdp::SDPBackend::math;
}

// A boolean mask as PyTorch converts it for the kernel that it chooses. Its cuDNN kernel gets a finite number.
std::optional<at::Tensor> mask_for_kernel(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                          const AttentionOptions& options, bool enable_gqa) {
  const auto& mask = options.mask;
  const bool is_boolean = mask && mask->defined() && mask->scalar_type() == at::kBool;
  if (!is_boolean || options.converted == nullptr || !query.is_cuda()) return mask;
  const auto kernel = choose_kernel(query, key, value, options, enable_gqa);
  const bool is_cudnn = kernel == sdp::SDPBackend::cudnn_attention;
  if (!is_cudnn && kernel != sdp::SDPBackend::efficient_attention) return mask;
  constexpr double kForbiddenForCudnn = -65504.0;
  const double forbidden = is_cudnn ? kForbiddenForCudnn : -std::numeric_limits<double>::infinity();
  const auto type = query.scalar_type();
  return options.converted->get(*mask, 2 * static_cast<int64_t>(type) + (is_cudnn ? 1 : 0),
                                [&](const at::Tensor& of) { return as_numbers(of, type, forbidden); });
}

// A head serves a group of query heads: [batch, heads, positions, width].
bool is_grouped(const at::Tensor& query, const at::Tensor& tensor, int64_t times) {
  return query.dim() == 4 && tensor.dim() == 4 && query.size(1) == tensor.size(1) * times;
}

at::Tensor repeated(const at::Tensor& tensor, int64_t times) {
  if (tensor.dim() != 4) return tensor.repeat_interleave(times, 1);
  const auto sizes = tensor.sizes();
  return tensor.unsqueeze(2)
      .expand({sizes[0], sizes[1], times, sizes[2], sizes[3]})
      .reshape({sizes[0], sizes[1] * times, sizes[2], sizes[3]});
}

int64_t times_of(const at::Tensor& query, const at::Tensor& key, const AttentionOptions& options) {
  if (!options.enable_gqa) return options.repeats;
  const bool divides = query.dim() == 4 && key.dim() == 4 && key.size(1) > 0 && query.size(1) % key.size(1) == 0;
  return divides ? query.size(1) / key.size(1) : 1;
}

}  // namespace

at::Tensor attention(const at::Tensor& given_query, const at::Tensor& given_key, const at::Tensor& given_value,
                     AttentionOptions options, constants::KnownMasks* masks) {
  // The choice of a kernel looks at dtypes, which autocast would change only later.
  const at::Tensor query = as_autocast(given_query), key = as_autocast(given_key), value = as_autocast(given_value);
  if (masks != nullptr) simplify_mask(query, key, options, *masks);
  const auto attend = [&](const at::Tensor& keys, const at::Tensor& values, bool enable_gqa) {
    return at::scaled_dot_product_attention(query, keys, values,
                                            mask_for_kernel(query, keys, values, options, enable_gqa), options.dropout,
                                            options.is_causal, options.scale, enable_gqa);
  };
  const int64_t times = times_of(query, key, options);
  if (times == 1) return attend(key, value, options.enable_gqa);
  const bool groups = is_grouped(query, key, times) && is_grouped(query, value, times);
  if (groups && has_fused_kernel(query, key, value, options)) return attend(key, value, /*enable_gqa=*/true);
  if (!groups && options.enable_gqa) return attend(key, value, /*enable_gqa=*/true);  // PyTorch says what is wrong
  return attend(repeated(key, times), repeated(value, times), /*enable_gqa=*/false);
}

}  // namespace dslaunch::runtime::model::layers
