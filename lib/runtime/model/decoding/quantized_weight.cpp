#include "runtime/model/decoding/quantized_weight.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

constexpr int64_t kAtOnce = 1 << 22;  // elements that are quantized at once, in fp32
constexpr double kMaxInt8 = 127, kMaxFp8 = 448, kMaxInt4 = 15;

const torch::class_<QuantizedWeight> kWeightClass("dslaunch", "QuantizedWeight");

struct Part {
  at::Tensor values, scales;
};

at::Tensor without_zeros(const at::Tensor& scales) {
  return scales.masked_fill(scales.eq(0), 1);
}

// On GPUs, too, where a number as divisor is taken for its reciprocal.
at::Tensor quotient(const at::Tensor& value, double divisor) {
  return value.div(at::full({}, divisor, value.options()));
}

// Each output's largest magnitude becomes the type's.
Part quantize_outputs(const at::Tensor& weight, WeightType type) {
  const double most = type == WeightType::kInt8 ? kMaxInt8 : kMaxFp8;
  const at::Tensor scales = without_zeros(quotient(weight.abs().amax(1), most));
  const at::Tensor scaled = weight.div(scales.unsqueeze(1)).clamp_(-most, most);
  return {type == WeightType::kInt8 ? scaled.round_().to(at::kChar) : scaled.to(at::kFloat8_e4m3fn), scales};
}

// fp32 to the next bf16 that is not above it.
at::Tensor rounded_down(const at::Tensor& value) {
  constexpr int kRest = 0xFFFF;  // what bf16 has no room for
  const at::Tensor bits = value.contiguous().view(at::kInt);
  return at::where(value < 0, bits + kRest, bits).bitwise_and(~kRest).view(at::kFloat);
}

// Eight columns make a word: those of even numbers in its lower half, those of odd ones in its upper half.
at::Tensor packed(const at::Tensor& levels) {
  const at::Tensor halves = levels.view({levels.size(0), -1, 4, 2}).transpose(2, 3).reshape({levels.size(0), -1, 2});
  return halves.select(2, 0).bitwise_or(halves.select(2, 1).bitwise_left_shift(at::Scalar(4)));
}

at::Tensor unpacked(const at::Tensor& bytes) {
  const at::Tensor both = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(at::Scalar(4))}, 2);
  return both.view({bytes.size(0), -1, 2, 4}).transpose(2, 3).reshape({bytes.size(0), -1});
}

// Of each group from the smallest to the largest element in 15 steps. Scale and offset are rounded so that these ends
// stay within the steps.
Part quantize_groups(const at::Tensor& weight) {
  const at::Tensor groups = weight.view({weight.size(0), -1, kInt4Group});
  const at::Tensor offsets = rounded_down(groups.amin(2));
  const at::Tensor scales = without_zeros(-rounded_down(quotient(offsets - groups.amax(2), kMaxInt4)));
  const at::Tensor levels =
      groups.sub(offsets.unsqueeze(2)).div_(scales.unsqueeze(2)).round_().clamp_(0, kMaxInt4).to(at::kByte);
  return {packed(levels.view(weight.sizes())), at::stack({scales, offsets}, 2).to(at::kBFloat16)};
}

at::Tensor dequantized(const QuantizedWeight& weight) {
  if (weight.type != WeightType::kInt4) return weight.values.to(at::kFloat).mul_(weight.scales.unsqueeze(1));
  const at::Tensor levels = unpacked(weight.values).to(at::kFloat).view({weight.outputs, -1, kInt4Group});
  const at::Tensor wide = weight.scales.to(at::kFloat);
  return levels.mul(wide.select(2, 0).unsqueeze(2)).add_(wide.select(2, 1).unsqueeze(2)).view({weight.outputs, -1});
}

}  // namespace

void QuantizedWeight::quantize(const at::Tensor& weight, at::ScalarType own_dtype) {
  const at::NoGradGuard no_grad;
  outputs = weight.size(0);
  columns = weight.size(1);
  dtype = own_dtype;
  DSL_CHECK(columns % columns_of(type) == 0, "the columns of a quantized weight are a multiple of its groups");
  const int64_t at_once = std::max<int64_t>(1, kAtOnce / columns);
  for (int64_t begin = 0; begin < outputs; begin += at_once) {
    const int64_t count = std::min(at_once, outputs - begin);
    const at::Tensor wide = weight.narrow(0, begin, count).to(at::kFloat).contiguous();
    if (!wide.isfinite().all().item<bool>()) throw UserError(ExitCode::kBadInput, "it has values that are not finite");
    const Part part = type == WeightType::kInt4 ? quantize_groups(wide) : quantize_outputs(wide, type);
    for (auto [whole, own] : {std::pair{&values, part.values}, {&scales, part.scales}}) {
      if (begin == 0) {
        std::vector<int64_t> sizes = own.sizes().vec();
        sizes[0] = outputs;
        *whole = at::empty(sizes, own.options());
      }
      whole->narrow(0, begin, count).copy_(own);
    }
  }
}

at::Tensor QuantizedWeight::whole() const {
  if (!values.is_cuda()) return dequantized(*this).to(dtype);
  const at::Tensor out = at::empty({outputs, columns}, values.options().dtype(dtype));
  device::module().decoding.expand(*this, out);
  return out;
}

int64_t QuantizedWeight::bytes() const {
  return static_cast<int64_t>(values.nbytes() + scales.nbytes());
}

}  // namespace dslaunch::runtime::model::decoding
