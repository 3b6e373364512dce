#include "runtime/model/operators/operator_flops.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

using Shape = std::vector<int64_t>;

int64_t product(c10::ArrayRef<int64_t> sizes) {
  int64_t out = 1;
  for (int64_t size : sizes) out *= size;
  return out;
}

bool is_tensor(Arguments arguments, size_t i) {
  return i < arguments.size() && arguments[i].isTensor() && arguments[i].toTensor().defined();
}
Shape shape(Arguments arguments, size_t i) {
  return is_tensor(arguments, i) ? arguments[i].toTensor().sizes().vec() : Shape{};
}
int64_t numel(Arguments arguments, size_t i) {
  return is_tensor(arguments, i) ? arguments[i].toTensor().numel() : 0;
}
bool flag(Arguments arguments, size_t i) {
  return i < arguments.size() && arguments[i].isBool() && arguments[i].toBool();
}

// An int[] argument for `dims` dimensions; a single number applies to all.
Shape per_dim(Arguments arguments, size_t i, size_t dims, int64_t fallback) {
  Shape out(dims, fallback);
  if (i >= arguments.size()) return out;
  if (arguments[i].isInt()) return Shape(dims, arguments[i].toInt());
  if (!arguments[i].isIntList()) return out;
  const auto given = arguments[i].toIntVector();
  if (given.size() == 1) return Shape(dims, given[0]);
  return given.size() == dims ? given : out;
}

OperatorCost gemm_cost(int64_t macs) {
  return {2 * macs, macs};
}

struct ConvolutionArguments {
  size_t stride = 3, padding = 4, dilation = 5;
  std::optional<size_t> output_padding;
  bool transposed = false;
};

OperatorCost convolution_cost(Arguments arguments, const ConvolutionArguments& at) {
  const Shape input = shape(arguments, 0), weight = shape(arguments, 1);
  if (weight.size() < 3 || input.size() + 1 < weight.size()) return {};
  const size_t dims = weight.size() - 2;
  const bool is_batched = input.size() == weight.size();
  const auto stride = per_dim(arguments, at.stride, dims, 1), padding = per_dim(arguments, at.padding, dims, 0);
  const auto dilation = per_dim(arguments, at.dilation, dims, 1);
  const bool keeps_size = at.padding < arguments.size() && arguments[at.padding].isString() &&
                          arguments[at.padding].toStringRef() == "same";
  const auto extra = per_dim(arguments, at.output_padding.value_or(arguments.size()), dims, 0);
  int64_t inputs = is_batched ? input[0] : 1, outputs = inputs;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = input[input.size() - dims + d], reach = dilation[d] * (weight[2 + d] - 1);
    inputs *= size;
    if (at.transposed) {
      outputs *= (size - 1) * stride[d] - 2 * padding[d] + reach + extra[d] + 1;
    } else {
      outputs *= keeps_size ? size : (size + 2 * padding[d] - reach - 1) / stride[d] + 1;
    }
  }
  // A weight holds in x out / groups x kernel: each is used once at every output (transposed: input) position.
  OperatorCost cost = gemm_cost((at.transposed ? inputs : outputs) * product(weight));
  if (is_tensor(arguments, 2)) cost.flops += outputs * numel(arguments, 2);
  return cost;
}

}  // namespace

// Batch dimensions broadcast; a vector counts as one row or one column.
OperatorCost matmul_cost(Arguments arguments) {
  Shape a = shape(arguments, 0), b = shape(arguments, 1);
  if (a.empty() || b.empty()) return {};
  const int64_t inner = a.back(), columns = b.size() > 1 ? b.back() : 1;
  const int64_t rows = a.size() > 1 ? a[a.size() - 2] : 1;
  a.resize(a.size() > 2 ? a.size() - 2 : 0);
  b.resize(b.size() > 2 ? b.size() - 2 : 0);
  if (a.size() < b.size()) std::swap(a, b);
  int64_t batches = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t missing = a.size() - b.size();
    const int64_t other = i < missing ? 1 : b[i - missing];
    batches *= a[i] == 1 ? other : a[i];
  }
  return gemm_cost(batches * rows * inner * columns);
}

OperatorCost linear_cost(Arguments arguments) {
  const Shape weight = shape(arguments, 1);
  const int64_t out_features = weight.size() > 1 ? weight[0] : 1;
  return gemm_cost(numel(arguments, 0) * out_features);
}

// addmm(self, a, b), baddbmm: the GEMM, and one addition for each element of self.
OperatorCost addmm_cost(Arguments arguments) {
  const Shape b = shape(arguments, 2);
  if (b.empty()) return {};
  OperatorCost cost = gemm_cost(numel(arguments, 1) * b.back());
  cost.flops += numel(arguments, 0);
  return cost;
}

OperatorCost attention_cost(Arguments arguments) {
  const Shape q = shape(arguments, 0), k = shape(arguments, 1), v = shape(arguments, 2);
  if (q.size() < 2 || k.size() < 2 || v.size() < 2) return {};
  const int64_t keys = k[k.size() - 2];
  return gemm_cost(product(q) * keys + product(q) / q.back() * keys * v.back());
}

// (gradient, query, key, value, …): the GEMMs for scores, their gradient and those of query, key and value. The
// kernels keep no scores, so they compute them again.
OperatorCost attention_backward_cost(Arguments arguments) {
  const Shape q = shape(arguments, 1), k = shape(arguments, 2), v = shape(arguments, 3);
  if (q.size() < 2 || k.size() < 2 || v.size() < 2) return {};
  const int64_t scores = product(q) / std::max<int64_t>(1, q.back()) * k[k.size() - 2];
  return gemm_cost(scores * (3 * q.back() + 2 * v.back()));
}

OperatorCost plain_convolution_cost(Arguments arguments) {
  return convolution_cost(arguments, {});
}
OperatorCost transposed_convolution_cost(Arguments arguments) {
  return convolution_cost(arguments, {.dilation = 7, .output_padding = 5, .transposed = true});
}
// The form that a trace records: convolution and _convolution(input, weight, bias, stride, padding, dilation,
// transposed, …).
OperatorCost any_convolution_cost(Arguments arguments) {
  return convolution_cost(arguments, {.output_padding = 7, .transposed = flag(arguments, 6)});
}

// convolution_backward(gradient, input, weight, bias sizes, stride, padding, dilation, transposed, output padding,
// groups, mask): a forward's GEMMs for each gradient of input and weight that is wanted.
OperatorCost convolution_backward_cost(Arguments arguments) {
  const Shape gradient = shape(arguments, 0), input = shape(arguments, 1), weight = shape(arguments, 2);
  if (weight.size() < 3 || input.size() + 1 < weight.size() || input.size() != gradient.size()) return {};
  const Shape& from = flag(arguments, 7) ? input : gradient;
  const size_t dims = weight.size() - 2;
  int64_t positions = input.size() == weight.size() ? input[0] : 1;
  for (size_t d = from.size() - dims; d < from.size(); ++d) positions *= from[d];
  int64_t gradients = 2;
  if (arguments.size() > 10 && arguments[10].isBoolList()) {
    const auto wanted = arguments[10].toBoolList();
    gradients = (wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0);
  }
  return gemm_cost(gradients * positions * product(weight));
}

OperatorCost elementwise_cost(Arguments arguments) {
  return {numel(arguments, 0), 0};
}
OperatorCost batch_norm_cost(Arguments arguments) {
  const int64_t affine = is_tensor(arguments, 1) ? 1 : 0;
  return {numel(arguments, 0) * ((flag(arguments, 5) ? 4 : 1) + affine), 0};
}
OperatorCost instance_norm_cost(Arguments arguments) {
  return {numel(arguments, 0) * (is_tensor(arguments, 1) ? 5 : 4), 0};
}
// layer_norm and group_norm: the weight is the third argument.
OperatorCost layer_norm_cost(Arguments arguments) {
  return {numel(arguments, 0) * (is_tensor(arguments, 2) ? 5 : 4), 0};
}

// upsample_*(input, output_size or null, …, scale_factors): one operation for each output element.
OperatorCost upsample_cost(Arguments arguments) {
  const Shape input = shape(arguments, 0);
  if (input.size() < 3) return {};
  double outputs = static_cast<double>(input[0] * input[1]);
  if (arguments.size() > 1 && arguments[1].isIntList()) {
    outputs *= static_cast<double>(product(arguments[1].toIntVector()));
  } else {
    for (size_t d = 2; d < input.size(); ++d) outputs *= static_cast<double>(input[d]);
    if (arguments.back().isDoubleList()) {
      for (double factor : arguments.back().toDoubleVector()) outputs *= factor;
    }
  }
  return {static_cast<int64_t>(outputs), 0};
}

// lstm, gru, rnn_*(input, state, weights, …): every matrix once for each step of each sequence.
OperatorCost recurrent_cost(Arguments arguments) {
  const Shape input = shape(arguments, 0);
  if (input.size() != 3) return {};
  int64_t weights = 0;
  for (const auto& argument : arguments) {
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& weight : argument.toTensorVector()) weights += weight.dim() == 2 ? weight.numel() : 0;
    if (weights > 0) break;
  }
  return gemm_cost(input[0] * input[1] * weights);
}

OperatorCost recurrent_backward_cost(Arguments arguments) {
  return gemm_cost(2 * recurrent_cost(arguments).macs);
}

std::optional<OperatorCost> operator_cost(std::string_view name, Arguments arguments) {
  const FlopFormula formula = traits(name).flops;
  return formula == nullptr ? std::nullopt : std::optional(formula(arguments));
}

}  // namespace dslaunch::runtime::model::operators
