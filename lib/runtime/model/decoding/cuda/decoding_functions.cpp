// The CUDA module's function table for lib/runtime/model/decoding: unpacks tensors into pointers and sizes and launches
// the kernels. Part of the CUDA module, never of dsworker itself.
#include "runtime/model/decoding/decoding_functions.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/cached_attention.h"
#include "kernels/quantized_products.h"
#include "kernels/row_products.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"
#include "runtime/model/decoding/key_cache.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

static_assert(kernels::kCachePageTokens == KeyCache::kPageTokens);
static_assert(kernels::kInt4Group == kInt4Group);

kernels::HeadRows rows_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), static_cast<size_t>(tensor.stride(1)), static_cast<size_t>(tensor.stride(2))};
}

void set_mask(kernels::CachedAttention& out, const at::Tensor& mask) {
  out.mask = mask.const_data_ptr();
  out.mask_is_bool = mask.scalar_type() == at::kBool;
  const auto stride = [&mask](int64_t from_end) {
    const int64_t dim = mask.dim() - from_end;
    return dim < 0 || mask.size(dim) == 1 ? size_t{0} : static_cast<size_t>(mask.stride(dim));
  };
  out.mask_head = stride(3);
  out.mask_text = stride(2);
  out.mask_key = stride(1);
}

bool attend_on_device(const StepAttention& attention, const at::Tensor& tickets, const at::Tensor& out) {
  const at::Tensor& query = attention.query;
  const bool is_last_dense = query.stride(3) == 1 && attention.key.stride(3) == 1 && attention.value.stride(3) == 1;
  if (!is_last_dense) return false;
  kernels::CachedAttention own{
      .query = rows_of(query), .key = rows_of(attention.key), .value = rows_of(attention.value)};
  own.key_pages = attention.key_pages.mutable_data_ptr();
  own.value_pages = attention.value_pages.mutable_data_ptr();
  own.page_table = attention.page_table.const_data_ptr<int32_t>();
  own.positions = attention.positions.const_data_ptr<int64_t>();
  if (attention.mask) set_mask(own, *attention.mask);
  own.scale = static_cast<float>(attention.scale);
  own.overlaps = attention.overlaps;
  own.type = element_type(query.scalar_type());
  own.heads = static_cast<size_t>(query.size(1));
  own.kv_heads = static_cast<size_t>(attention.key.size(1));
  own.width = static_cast<size_t>(query.size(3));
  own.texts = static_cast<size_t>(query.size(2));
  own.pages_of_text = static_cast<size_t>(attention.page_table.size(1));
  if (!kernels::cached_attention_fits(own)) return false;
  if (kernels::num_attention_tickets(own) > static_cast<size_t>(tickets.numel())) return false;
  const c10::cuda::CUDAGuard guard(query.device());
  const at::Tensor partials =
      at::empty({static_cast<int64_t>(kernels::num_attention_partials(own))}, query.options().dtype(at::kFloat));
  const kernels::AttentionScratch scratch{partials.mutable_data_ptr<float>(),
                                          reinterpret_cast<unsigned*>(tickets.mutable_data_ptr<int32_t>())};
  check_launch(kernels::launch_cached_attention(own, scratch, out.mutable_data_ptr(), stream_of(query)),
               "cached attention", query);
  return true;
}

bool multiply_rows_on_device(const at::Tensor& input, at::TensorList weights, at::TensorList biases,
                             at::TensorList outs, bool overlaps) {
  if (weights.size() > static_cast<size_t>(kernels::kMaxProductParts)) return false;
  kernels::RowProducts own;
  own.input = input.const_data_ptr();
  own.type = element_type(input.scalar_type());
  own.rows = static_cast<size_t>(input.size(0));
  own.columns = static_cast<size_t>(input.size(1));
  own.overlaps = overlaps;
  for (size_t i = 0; i < weights.size(); ++i) {
    own.parts[own.num_parts++] = {weights[i].const_data_ptr(),
                                  biases[i].defined() ? biases[i].const_data_ptr() : nullptr,
                                  outs[i].mutable_data_ptr(), static_cast<size_t>(weights[i].size(0))};
  }
  if (!kernels::row_products_fit(own)) return false;
  const c10::cuda::CUDAGuard guard(input.device());
  check_launch(kernels::launch_row_products(own, stream_of(input)), "row products", input);
  return true;
}

kernels::WeightFormat format_of(WeightType type) {
  switch (type) {
    case WeightType::kInt8:
      return kernels::WeightFormat::kInt8;
    case WeightType::kFp8:
      return kernels::WeightFormat::kFp8;
    default:
      return kernels::WeightFormat::kInt4;
  }
}

kernels::QuantizedMatrix matrix_of(const QuantizedWeight& weight) {
  return {weight.values.const_data_ptr(), weight.scales.const_data_ptr(), static_cast<size_t>(weight.outputs)};
}

bool multiply_quantized_on_device(const at::Tensor& input, const std::vector<QuantizedWeightPtr>& weights,
                                  at::TensorList biases, at::TensorList outs, bool overlaps) {
  if (weights.size() > static_cast<size_t>(kernels::kMaxQuantizedParts)) return false;
  kernels::QuantizedProducts own;
  own.input = input.const_data_ptr();
  own.type = element_type(input.scalar_type());
  own.format = format_of(weights[0]->type);
  own.rows = static_cast<size_t>(input.size(0));
  own.columns = static_cast<size_t>(input.size(1));
  own.overlaps = overlaps;
  for (size_t i = 0; i < weights.size(); ++i) {
    own.parts[own.num_parts++] = {matrix_of(*weights[i]), biases[i].defined() ? biases[i].const_data_ptr() : nullptr,
                                  outs[i].mutable_data_ptr()};
  }
  if (!kernels::quantized_products_fit(own)) return false;
  const c10::cuda::CUDAGuard guard(input.device());
  check_launch(kernels::launch_quantized_products(own, stream_of(input)), "quantized products", input);
  return true;
}

void expand_on_device(const QuantizedWeight& weight, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  check_launch(kernels::launch_expand(matrix_of(weight), format_of(weight.type), static_cast<size_t>(weight.columns),
                                      element_type(out.scalar_type()), out.mutable_data_ptr(), stream_of(out)),
               "expansion of a quantized weight", out);
}

}  // namespace

const DecodingFunctions kDecodingFunctions{.attend = attend_on_device,
                                           .multiply_rows = multiply_rows_on_device,
                                           .multiply_quantized_rows = multiply_quantized_on_device,
                                           .expand = expand_on_device};

}  // namespace dslaunch::runtime::model::decoding
