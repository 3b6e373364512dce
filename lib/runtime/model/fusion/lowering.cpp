#include "runtime/model/fusion/lowering.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <numbers>
#include <unordered_map>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using operators::Lowering;
using torch::jit::Node;
using torch::jit::Value;

// The arguments of one node.
class Arguments {
 public:
  Arguments(const Node* node, const KnownValues& known, Builder& builder)
      : build(builder), node_(node), known_(known) {}

  size_t count() const { return node_->inputs().size(); }
  const c10::IValue& value(size_t i) const { return known_.value(node_->input(i)); }
  at::Tensor tensor(size_t i) const { return value(i).toTensor(); }
  at::Tensor result() const { return known_.value(node_->output()).toTensor(); }

  // An operand: a tensor, or a number.
  std::optional<Id> operand(size_t i) const {
    const c10::IValue& given = value(i);
    if (given.isTensor()) return tensor_operand(node_->input(i));
    if (given.isDouble() || given.isInt() || given.isBool()) return build.constant(given.toScalar().toDouble());
    return std::nullopt;
  }
  std::optional<Id> tensor_operand(const Value* of) const {
    const at::Tensor tensor = known_.value(of).toTensor();
    if (tensor.is_meta()) return known_.id(of);
    if (tensor.numel() != 1 || tensor.dim() > 0) return std::nullopt;
    return build.constant(tensor.item().toDouble());
  }
  std::optional<double> number(size_t i) const {
    const c10::IValue& given = value(i);
    if (given.isDouble() || given.isInt() || given.isBool()) return given.toScalar().toDouble();
    return std::nullopt;
  }
  bool is_none(size_t i) const { return value(i).isNone(); }
  std::vector<const Value*> list(size_t i) const {
    const Node* made = node_->input(i)->node();
    if (made->kind() != c10::prim::ListConstruct) return {};
    return {made->inputs().begin(), made->inputs().end()};
  }
  std::optional<std::vector<int64_t>> ints(size_t i) const {
    const c10::IValue& given = value(i);
    if (given.isIntList()) return given.toIntVector();
    if (given.isInt()) return std::vector<int64_t>{given.toInt()};
    return std::nullopt;
  }
  // Whether argument `i` says the last dim of argument 0, and nothing more.
  bool is_last_dim(size_t i) const {
    const auto dims = ints(i);
    const int64_t rank = tensor(0).dim();
    return dims && dims->size() == 1 && (dims->front() == -1 || dims->front() == rank - 1);
  }
  bool is_true(size_t i) const { return value(i).isBool() && value(i).toBool(); }
  int64_t columns(size_t i) const { return tensor(i).size(-1); }

  Builder& build;

 private:
  const Node* node_;
  const KnownValues& known_;
};

using Made = std::optional<Id>;

template <Op op>
Made unary(const Arguments& of) {
  const auto x = of.operand(0);
  return x ? Made(of.build.unary(op, *x)) : std::nullopt;
}

template <Op op>
Made binary(const Arguments& of) {
  const auto x = of.operand(0), y = of.operand(1);
  return x && y ? Made(of.build.binary(op, *x, *y)) : std::nullopt;
}

template <Op op, bool is_swapped = false, bool is_negated = false>
Made comparison(const Arguments& of) {
  const auto x = of.operand(0), y = of.operand(1);
  if (!x || !y) return std::nullopt;
  const Id made = is_swapped ? of.build.binary(op, *y, *x) : of.build.binary(op, *x, *y);
  return is_negated ? of.build.unary(Op::kNot, made) : made;
}

// x + alpha * y and the like.
template <Op op, bool is_swapped = false>
Made scaled(const Arguments& of) {
  auto x = of.operand(0), y = of.operand(1);
  if (!x || !y) return std::nullopt;
  if (is_swapped) std::swap(x, y);
  const auto alpha = of.count() > 2 ? of.number(2) : std::optional(1.0);
  if (!alpha || (is_swapped && *alpha != 1)) return std::nullopt;
  return of.build.binary(op, *x, of.build.binary(Op::kMultiply, *y, of.build.constant(*alpha)));
}

Made divide(const Arguments& of) {
  if (of.count() > 2 && !of.is_none(2)) return std::nullopt;  // a rounding mode
  return binary<Op::kDivide>(of);
}

Made power(const Arguments& of) {
  const auto x = of.operand(0);
  const auto exponent = of.number(1);
  return x && exponent ? Made(of.build.power(*x, *exponent)) : std::nullopt;
}

Made relu(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x) return std::nullopt;
  // The gradient at 0 is 0, as PyTorch's; and NaN stays.
  const Id zero = of.build.constant(0);
  return of.build.select(of.build.binary(Op::kLessEqual, *x, zero), zero, *x);
}

Made silu(const Arguments& of) {
  const auto x = of.operand(0);
  return x ? Made(of.build.binary(Op::kMultiply, *x, of.build.unary(Op::kSigmoid, *x))) : std::nullopt;
}

Made gelu(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x) return std::nullopt;
  auto& build = of.build;
  const bool is_tanh = of.count() > 1 && of.value(1).isString() && of.value(1).toStringRef() == "tanh";
  const Id half = build.binary(Op::kMultiply, *x, build.constant(0.5));
  Id curve = 0;
  if (is_tanh) {
    const Id cube = build.binary(Op::kMultiply, build.power(*x, 3), build.constant(0.044715));
    const Id inner = build.binary(Op::kMultiply, build.binary(Op::kAdd, *x, cube),
                                  build.constant(std::numbers::sqrt2 * std::numbers::inv_sqrtpi));
    curve = build.unary(Op::kTanh, inner);
  } else {
    curve = build.unary(Op::kErf, build.binary(Op::kMultiply, *x, build.constant(1 / std::numbers::sqrt2)));
  }
  return build.binary(Op::kMultiply, half, build.binary(Op::kAdd, curve, build.constant(1)));
}

// Between two bounds, either of which may be missing; the gradient at a bound flows, as PyTorch's.
Made clamp(const Arguments& of) {
  auto x = of.operand(0);
  if (!x) return std::nullopt;
  for (const size_t i : {1, 2}) {
    if (i >= of.count() || of.is_none(i)) continue;
    const auto bound = of.number(i);
    if (!bound) return std::nullopt;
    const Id limit = of.build.constant(*bound);
    const Id is_outside = i == 1 ? of.build.binary(Op::kLess, *x, limit) : of.build.binary(Op::kLess, limit, *x);
    x = of.build.select(is_outside, limit, *x);
  }
  return x;
}

Made cast(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x) return std::nullopt;
  const auto from = of.tensor(0).scalar_type(), to = of.result().scalar_type();
  if (from == to) return x;
  if (to != at::kBool) return of.build.cast(*x, to);
  return of.build.unary(Op::kNot, of.build.unary(Op::kNot, *x));
}

Made where(const Arguments& of) {
  if (of.count() != 3) return std::nullopt;
  const auto condition = of.operand(0), yes = of.operand(1), no = of.operand(2);
  return condition && yes && no ? Made(of.build.select(*condition, *yes, *no)) : std::nullopt;
}

Made masked_fill(const Arguments& of) {
  const auto x = of.operand(0), mask = of.operand(1), value = of.operand(2);
  return x && mask && value ? Made(of.build.select(*mask, *value, *x)) : std::nullopt;
}

template <Op op, bool is_mean = false>
Made row(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x || of.count() < 3 || !of.is_last_dim(1) || !of.is_true(2)) return std::nullopt;
  if (of.count() > 3 && !of.is_none(3)) return std::nullopt;  // another dtype
  if (!at::isFloatingType(of.tensor(0).scalar_type())) return std::nullopt;
  return is_mean ? of.build.row_mean(*x) : of.build.row(op, *x);
}

Made softmax(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x || !of.is_last_dim(1) || of.columns(0) == 1) return std::nullopt;
  auto& build = of.build;
  const Id most = build.unary(Op::kDetach, build.row(Op::kRowMax, *x));  // cancels out
  const Id share = build.unary(Op::kExp, build.binary(Op::kSubtract, *x, most));
  return build.binary(Op::kDivide, share, build.row(Op::kRowSum, share));
}

Made layer_norm(const Arguments& of) {
  const auto shape = of.ints(1);
  const auto x = of.operand(0);
  const auto eps = of.number(4);
  if (!x || !shape || shape->size() != 1 || !eps || of.columns(0) == 1) return std::nullopt;
  auto& build = of.build;
  const Id centered = build.binary(Op::kSubtract, *x, build.row_mean(*x));
  const Id variance = build.row_mean(build.power(centered, 2));
  const Id scale = build.unary(Op::kRsqrt, build.binary(Op::kAdd, variance, build.constant(*eps)));
  Id out = build.binary(Op::kMultiply, centered, scale);
  for (const size_t i : {2, 3}) {
    if (of.is_none(i)) continue;
    const auto parameter = of.operand(i);
    if (!parameter) return std::nullopt;
    out = build.binary(i == 2 ? Op::kMultiply : Op::kAdd, out, *parameter);
  }
  return out;
}

Made with_bias(const Arguments& of) {
  const auto x = of.operand(0), bias = of.operand(1);
  const bool fits = x && bias && of.tensor(1).dim() == 1 && of.columns(0) == of.columns(1);
  return fits ? Made(of.build.binary(Op::kShareGradient, *x, *bias)) : std::nullopt;
}

Made slice(const Arguments& of) {
  const auto x = of.operand(0);
  if (!x) return std::nullopt;
  const at::Tensor from = of.tensor(0), to = of.result();
  if (from.sizes() == to.sizes()) return x;
  const auto dim = of.number(1), step = of.number(4);
  if (!dim || !step || *step != 1 || (*dim != -1 && *dim != static_cast<double>(from.dim() - 1)) || to.size(-1) < 2) {
    return std::nullopt;
  }
  int64_t begin = of.is_none(2) ? 0 : of.value(2).toInt();
  if (begin < 0) begin += from.size(-1);
  return of.build.slice(*x, std::max<int64_t>(begin, 0), to.size(-1));
}

Made cat(const Arguments& of) {
  const auto dim = of.number(1);
  const at::Tensor result = of.result();
  if (!dim || (*dim != -1 && *dim != static_cast<double>(result.dim() - 1))) return std::nullopt;
  std::vector<Id> parts;
  for (const Value* part : of.list(0)) {
    const auto id = of.tensor_operand(part);
    if (!id || of.build.width(*id) < 2) return std::nullopt;
    parts.push_back(*id);
  }
  return parts.empty() ? std::nullopt : Made(of.build.concat(parts));
}

// Of eval mode, or with probability 0.
Made dropout(const Arguments& of) {
  const auto p = of.number(1);
  const bool is_identity = (p && *p == 0) || (of.value(2).isBool() && !of.value(2).toBool());
  return is_identity ? of.operand(0) : std::nullopt;
}

const std::unordered_map<Lowering, Made (*)(const Arguments&)>& lowerings() {
  static const std::unordered_map<Lowering, Made (*)(const Arguments&)> table{
      {Lowering::kNegate, unary<Op::kNegate>},
      {Lowering::kAbs, unary<Op::kAbs>},
      {Lowering::kExp, unary<Op::kExp>},
      {Lowering::kLog, unary<Op::kLog>},
      {Lowering::kSqrt, unary<Op::kSqrt>},
      {Lowering::kRsqrt, unary<Op::kRsqrt>},
      {Lowering::kReciprocal, unary<Op::kReciprocal>},
      {Lowering::kSin, unary<Op::kSin>},
      {Lowering::kCos, unary<Op::kCos>},
      {Lowering::kTanh, unary<Op::kTanh>},
      {Lowering::kSigmoid, unary<Op::kSigmoid>},
      {Lowering::kErf, unary<Op::kErf>},
      {Lowering::kNot, unary<Op::kNot>},
      {Lowering::kRelu, relu},
      {Lowering::kSilu, silu},
      {Lowering::kGelu, gelu},
      {Lowering::kPower, power},
      {Lowering::kAdd, scaled<Op::kAdd>},
      {Lowering::kSubtract, scaled<Op::kSubtract>},
      {Lowering::kReverseSubtract, scaled<Op::kSubtract, true>},
      {Lowering::kMultiply, binary<Op::kMultiply>},
      {Lowering::kDivide, divide},
      {Lowering::kMaximum, binary<Op::kMaximum>},
      {Lowering::kMinimum, binary<Op::kMinimum>},
      {Lowering::kClamp, clamp},
      {Lowering::kLess, comparison<Op::kLess>},
      {Lowering::kGreater, comparison<Op::kLess, true>},
      {Lowering::kLessEqual, comparison<Op::kLessEqual>},
      {Lowering::kGreaterEqual, comparison<Op::kLessEqual, true>},
      {Lowering::kEqual, comparison<Op::kEqual>},
      {Lowering::kNotEqual, comparison<Op::kEqual, false, true>},
      {Lowering::kWhere, where},
      {Lowering::kMaskedFill, masked_fill},
      {Lowering::kCast, cast},
      {Lowering::kMean, row<Op::kRowSum, true>},
      {Lowering::kSum, row<Op::kRowSum>},
      {Lowering::kMax, row<Op::kRowMax>},
      {Lowering::kSoftmax, softmax},
      {Lowering::kLayerNorm, layer_norm},
      {Lowering::kWithBias, with_bias},
      {Lowering::kSlice, slice},
      {Lowering::kConcat, cat},
      {Lowering::kDropout, dropout},
  };
  return table;
}

bool is_region_type(at::ScalarType type) {
  return at::isFloatingType(type) || type == at::kBool;
}

// A tensor that is not a constant of one element.
bool is_region_tensor(const c10::IValue& value) {
  if (!value.isTensor()) return true;
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && is_region_type(tensor.scalar_type()) && tensor.layout() == at::kStrided;
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// Of the overloads of `aten::to` the one that names a dtype alone; it copies no more than it has to.
bool is_plain_cast(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || schema->overload_name() != "dtype") return false;
  const auto format = torch::jit::toIValue(node->input(4));
  return format && format->isNone();
}

// What draws no random numbers for any input.
bool is_quiet_dropout(const Node* node) {
  const auto p = torch::jit::toIValue(node->input(1)), trains = torch::jit::toIValue(node->input(2));
  return (p && p->isDouble() && p->toDouble() == 0) || (trains && trains->isBool() && !trains->toBool());
}

Lowering lowering_of(const Node* node) {
  return operators::traits(node->kind()).lowering;
}

// Arithmetic on booleans has rules of its own.
bool may_be_boolean(Lowering lowering) {
  switch (lowering) {
    case Lowering::kNot:
    case Lowering::kLess:
    case Lowering::kGreater:
    case Lowering::kLessEqual:
    case Lowering::kGreaterEqual:
    case Lowering::kEqual:
    case Lowering::kNotEqual:
    case Lowering::kWhere:
    case Lowering::kCast:
    case Lowering::kSlice:
    case Lowering::kConcat:
      return true;
    default:
      return false;
  }
}

std::optional<Id> lower_checked(const Node* node, const KnownValues& known, Builder& build) {
  const auto found = lowerings().find(lowering_of(node));
  return found == lowerings().end() ? std::nullopt : found->second(Arguments(node, known, build));
}

}  // namespace

bool is_fusible(const Node* node) {
  if (node->outputs().size() != 1 || !is_tensor(node->output()) || node->inputs().empty()) return false;
  switch (lowering_of(node)) {
    case Lowering::kNone:
      return false;
    case Lowering::kConcat:
      return node->input(0)->node()->kind() == c10::prim::ListConstruct;
    case Lowering::kCast:
      return is_tensor(node->input(0)) && (node->kind() != c10::aten::to || is_plain_cast(node));
    case Lowering::kDropout:
      return is_tensor(node->input(0)) && is_quiet_dropout(node);
    case Lowering::kMean:
    case Lowering::kSum:
    case Lowering::kMax:
      return is_tensor(node->input(0)) && node->inputs().size() >= 3;
    case Lowering::kPower:
      return is_tensor(node->input(0)) || is_tensor(node->input(1));
    default:
      return is_tensor(node->input(0));
  }
}

std::optional<Id> lower(const Node* node, const KnownValues& known, Builder& build) {
  return lower_checked(node, known, build);
}

bool fits(const Node* node, const KnownValues& known) {
  if (!is_fusible(node)) return false;
  const c10::IValue& result = known.value(node->output());
  if (!result.isTensor() || !is_region_tensor(result) || result.toTensor().dim() < 2 ||
      result.toTensor().numel() == 0) {
    return false;
  }
  const at::Tensor& out = result.toTensor();
  if (out.scalar_type() == at::kBool && !may_be_boolean(lowering_of(node))) return false;
  bool any_wide = false;
  const auto is_fitting = [&](const Value* value) {
    const c10::IValue& given = known.value(value);
    if (!is_region_tensor(given)) return false;
    any_wide = any_wide || (given.isTensor() && given.toTensor().dim() > 0);
    return !given.isTensor() || given.toTensor().dim() <= out.dim();
  };
  for (const Value* input : node->inputs()) {
    if (input->node()->kind() == c10::prim::ListConstruct && input->type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      for (const Value* part : input->node()->inputs()) {
        if (!is_fitting(part)) return false;
      }
    } else if (!is_fitting(input)) {
      return false;
    }
  }
  if (!any_wide) return false;
  // Tried on a region of its own.
  Region scratch;
  Builder build(scratch);
  KnownValues alone = known;
  alone.id = [&](const Value* value) {
    const at::Tensor tensor = known.value(value).toTensor();
    return build.input({tensor.scalar_type(), tensor.dim() == 0 ? 1 : tensor.size(-1), {true}});
  };
  const auto made = lower_checked(node, alone, build);
  return made && build.width(*made) == out.size(-1);
}

}  // namespace dslaunch::runtime::model::fusion
