#include "runtime/model/fusion/executor.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

at::ScalarType arithmetic_type(const Region& region) {
  const bool is_double = std::any_of(region.inputs.begin(), region.inputs.end(),
                                     [](const Input& input) { return input.dtype == at::kDouble; });
  return is_double ? at::kDouble : at::kFloat;
}

class ShareGradient : public torch::autograd::Function<ShareGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& value,
                            const at::Tensor& other) {
    context->saved_data["sizes"] = other.sizes();
    return value;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    return {upstream[0], at::sum_to(upstream[0], context->saved_data["sizes"].toIntVector())};
  }
};

class Reference {
 public:
  Reference(const Region& region, const std::vector<at::Tensor>& inputs, at::IntArrayRef leading)
      : region_(region), inputs_(inputs), leading_(leading.vec()), type_(arithmetic_type(region)) {}

  std::vector<at::Tensor> run() {
    for (const auto& node : region_.nodes) values_.push_back(compute(node));
    std::vector<at::Tensor> out;
    for (const auto& output : region_.outputs) {
      at::Tensor value = whole(values_[static_cast<size_t>(output.value)], region_.node(output.value).width);
      if (output.rows == Rows::kSum) value = value.reshape({-1, value.size(-1)}).sum(0);
      out.push_back(value.to(output.dtype));
    }
    return out;
  }

 private:
  at::Tensor whole(const at::Tensor& value, int64_t width) const {
    auto sizes = leading_;
    sizes.push_back(width);
    return value.expand(sizes);
  }
  at::Tensor condition(const at::Tensor& value) const { return value != 0; }
  at::Tensor flag(const at::Tensor& value) const { return value.to(type_); }

  at::Tensor compute(const Instruction& node) const {
    const auto operand = [&](size_t i) { return values_[static_cast<size_t>(node.operands[i])]; };
    switch (node.op) {
      case Op::kInput:
        return inputs_[static_cast<size_t>(node.index)].to(type_);
      case Op::kConstant:
        return at::full({1}, node.number, inputs_.at(0).options().dtype(type_).requires_grad(false));
      case Op::kNegate:
        return operand(0).neg();
      case Op::kAbs:
        return operand(0).abs();
      case Op::kExp:
        return operand(0).exp();
      case Op::kLog:
        return operand(0).log();
      case Op::kSqrt:
        return operand(0).sqrt();
      case Op::kRsqrt:
        return operand(0).rsqrt();
      case Op::kReciprocal:
        return operand(0).reciprocal();
      case Op::kSin:
        return operand(0).sin();
      case Op::kCos:
        return operand(0).cos();
      case Op::kTanh:
        return operand(0).tanh();
      case Op::kSigmoid:
        return operand(0).sigmoid();
      case Op::kErf:
        return operand(0).erf();
      case Op::kNot:
        return flag(operand(0) == 0);
      case Op::kPower:
        return operand(0).pow(node.number);
      case Op::kCast:
        return operand(0).to(node.dtype).to(type_);
      case Op::kDetach:
        return operand(0).detach();
      case Op::kAdd:
        return operand(0) + operand(1);
      case Op::kSubtract:
        return operand(0) - operand(1);
      case Op::kMultiply:
        return operand(0) * operand(1);
      case Op::kDivide:
        return operand(0) / operand(1);
      case Op::kMaximum:
        return at::maximum(operand(0), operand(1));
      case Op::kMinimum:
        return at::minimum(operand(0), operand(1));
      case Op::kLess:
        return flag(operand(0) < operand(1));
      case Op::kLessEqual:
        return flag(operand(0) <= operand(1));
      case Op::kEqual:
        return flag(operand(0) == operand(1));
      case Op::kSelect:
        return at::where(condition(operand(0)), operand(1), operand(2));
      case Op::kRowSum:
        return wide(node, 0).sum(-1, /*keepdim=*/true);
      case Op::kRowMax:
        return wide(node, 0).amax(-1, /*keepdim=*/true);
      case Op::kSlice:
        return wide(node, 0).narrow(-1, node.index, node.width);
      case Op::kConcat: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < node.operands.size(); ++i) {
          parts.push_back(whole(operand(i), region_.node(node.operands[i]).width));
        }
        return at::cat(parts, -1);
      }
      case Op::kShareGradient:
        return at::GradMode::is_enabled() && operand(1).requires_grad() ? ShareGradient::apply(operand(0), operand(1))
                                                                        : operand(0);
      case Op::kBroadcast: {
        auto sizes = operand(0).sizes().vec();
        sizes.back() = node.width;
        return operand(0).expand(sizes);
      }
    }
    throw InternalError(__FILE__, __LINE__, "compute", "an operation that the reference lacks");
  }

  // With all its columns: an input whose tensor has one dim has them already.
  at::Tensor wide(const Instruction& node, size_t i) const {
    const at::Tensor& value = values_[static_cast<size_t>(node.operands[i])];
    auto sizes = value.sizes().vec();
    sizes.back() = region_.node(node.operands[i]).width;
    return value.expand(sizes);
  }

  const Region& region_;
  const std::vector<at::Tensor>& inputs_;
  const std::vector<int64_t> leading_;
  const at::ScalarType type_;
  std::vector<at::Tensor> values_;
};

}  // namespace

std::vector<at::Tensor> run_reference(const Region& region, const std::vector<at::Tensor>& inputs,
                                      at::IntArrayRef leading) {
  return Reference(region, inputs, leading).run();
}

}  // namespace dslaunch::runtime::model::fusion
