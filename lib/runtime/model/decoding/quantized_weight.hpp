// The weight of a linear layer in 8 or 4 bits: rounded to the nearest of the values that a scale gives. Any thread,
// after quantize().
#pragma once
#include <torch/custom_class.h>

#include <cstdint>

#include "runtime/model/interface/quantized_layers.hpp"

namespace dslaunch::runtime::model::decoding {

struct QuantizedWeight : torch::CustomClassHolder {
  explicit QuantizedWeight(WeightType own_type) : type(own_type) {}

  // From [outputs, columns] of a floating-point type, a part of it at a time. Columns are a multiple of columns_of().
  // Throws UserError(65) if it is not finite. `own_dtype`: of whole().
  void quantize(const at::Tensor& weight, at::ScalarType own_dtype);
  // [outputs, columns], what the layer multiplies by: computed in fp32, rounded to the type.
  at::Tensor whole() const;
  int64_t bytes() const;

  static int64_t columns_of(WeightType type) { return type == WeightType::kInt4 ? kInt4Group : 16; }

  const WeightType type;
  int64_t outputs = 0, columns = 0;
  at::ScalarType dtype = at::kFloat;
  // int8 or e4m3 [outputs, columns]; of int4 uint8 [outputs, columns / 2], as kernels/quantized_products.h says.
  at::Tensor values;
  at::Tensor scales;  // fp32 [outputs]; of int4 bf16 [outputs, groups, 2]: scale, offset
};

using QuantizedWeightPtr = c10::intrusive_ptr<QuantizedWeight>;

}  // namespace dslaunch::runtime::model::decoding
