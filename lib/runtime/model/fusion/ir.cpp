#include "runtime/model/fusion/ir.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

constexpr std::array kNames{
    "input", "constant", "neg",       "abs",           "exp", "log", "sqrt", "rsqrt",  "reciprocal", "sin",
    "cos",   "tanh",     "sigmoid",   "erf",           "not", "pow", "cast", "detach", "add",        "sub",
    "mul",   "div",      "max",       "min",           "lt",  "le",  "eq",   "where",  "row_sum",    "row_max",
    "slice", "cat",      "broadcast", "share_gradient"};
static_assert(kNames.size() == static_cast<size_t>(Op::kShareGradient) + 1);

}  // namespace

bool is_reduction(Op op) {
  return op == Op::kRowSum || op == Op::kRowMax;
}

std::vector<int> reduction_levels(const Region& region) {
  std::vector<int> levels;
  for (const auto& node : region.nodes) {
    int level = 0;
    for (const Id operand : node.operands) level = std::max(level, levels[static_cast<size_t>(operand)]);
    levels.push_back(level + (is_reduction(node.op) ? 1 : 0));
  }
  return levels;
}

std::string to_text(const Region& region) {
  std::string out;
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    const auto& input = region.inputs[i];
    std::string varies;
    for (const bool one : input.varies) varies += one ? '*' : '1';
    out += fmt::format("input {}: {} [{} {}]\n", i, at::toString(input.dtype), varies, input.width);
  }
  for (size_t i = 0; i < region.nodes.size(); ++i) {
    const auto& node = region.nodes[i];
    out += fmt::format("%{} = {}({})", i, kNames[static_cast<size_t>(node.op)], fmt::join(node.operands, ", "));
    if (node.op == Op::kConstant || node.op == Op::kPower) out += fmt::format(" {}", node.number);
    if (node.op == Op::kInput || node.op == Op::kSlice) out += fmt::format(" from {}", node.index);
    if (node.op == Op::kCast) out += fmt::format(" to {}", at::toString(node.dtype));
    out += fmt::format(" [{}]\n", node.width);
  }
  for (const auto& output : region.outputs) {
    out += fmt::format("output %{} {}{}\n", output.value, at::toString(output.dtype),
                       output.rows == Rows::kSum ? " summed over rows" : "");
  }
  return out;
}

Builder::Builder(Region& region) : region_(region) {
  for (size_t i = 0; i < region.nodes.size(); ++i) known_.emplace(region.nodes[i], static_cast<Id>(i));
}

Id Builder::add(Instruction node) {
  const auto found = known_.find(node);
  if (found != known_.end()) return found->second;
  const auto id = static_cast<Id>(region_.nodes.size());
  known_.emplace(node, id);
  region_.nodes.push_back(std::move(node));
  return id;
}

Id Builder::input(Input input) {
  const auto index = static_cast<int64_t>(region_.inputs.size());
  const int64_t width = input.width;
  region_.inputs.push_back(std::move(input));
  return add({.op = Op::kInput, .width = width, .index = index});
}

Id Builder::unary(Op op, Id operand) {
  const Instruction& inner = region_.node(operand);
  if (op == Op::kNegate && inner.op == Op::kNegate) return inner.operands[0];
  if (op == Op::kDetach && inner.op == Op::kDetach) return operand;
  return add({.op = op, .operands = {operand}, .width = inner.width});
}

Id Builder::power(Id operand, double exponent) {
  if (exponent == 1) return operand;
  if (exponent == 2) return binary(Op::kMultiply, operand, operand);
  if (exponent == 3) return binary(Op::kMultiply, power(operand, 2), operand);
  if (exponent == 0.5) return unary(Op::kSqrt, operand);
  if (exponent == -0.5) return unary(Op::kRsqrt, operand);
  if (exponent == -1) return unary(Op::kReciprocal, operand);
  return add({.op = Op::kPower, .operands = {operand}, .width = width(operand), .number = exponent});
}

Id Builder::cast(Id operand, at::ScalarType dtype) {
  const Instruction& inner = region_.node(operand);
  // Values are at least as precise as fp32 inside, so casts to it change nothing.
  if (dtype == at::kFloat || dtype == at::kDouble) return operand;
  if (inner.op == Op::kCast && inner.dtype == dtype) return operand;
  return add({.op = Op::kCast, .operands = {operand}, .width = inner.width, .dtype = dtype});
}

Id Builder::binary(Op op, Id left, Id right) {
  const auto is = [&](Id id, double number) {
    const Instruction& node = region_.node(id);
    return node.op == Op::kConstant && node.number == number;
  };
  const bool keeps_left = width(left) >= width(right), keeps_right = width(right) >= width(left);
  if (op == Op::kMultiply && is(right, 1) && keeps_left) return left;
  if (op == Op::kMultiply && is(left, 1) && keeps_right) return right;
  if (op == Op::kAdd && is(right, 0) && keeps_left) return left;
  if (op == Op::kAdd && is(left, 0) && keeps_right) return right;
  DSL_CHECK(width(left) == width(right) || width(left) == 1 || width(right) == 1, "columns that do not broadcast");
  return add({.op = op, .operands = {left, right}, .width = std::max(width(left), width(right))});
}

Id Builder::select(Id condition, Id yes, Id no) {
  return add({.op = Op::kSelect,
              .operands = {condition, yes, no},
              .width = std::max({width(condition), width(yes), width(no)})});
}

Id Builder::row(Op op, Id operand) {
  if (width(operand) == 1) return operand;
  return add({.op = op, .operands = {operand}});
}

Id Builder::row_mean(Id operand) {
  return binary(Op::kMultiply, row(Op::kRowSum, operand), constant(1.0 / static_cast<double>(width(operand))));
}

Id Builder::slice(Id operand, int64_t begin, int64_t width) {
  const Instruction& inner = region_.node(operand);
  if (inner.width == width) return operand;
  if (inner.op == Op::kSlice) return slice(inner.operands[0], inner.index + begin, width);
  if (inner.op == Op::kBroadcast) return broadcast(inner.operands[0], width);
  return add({.op = Op::kSlice, .operands = {operand}, .width = width, .index = begin});
}

Id Builder::concat(const std::vector<Id>& operands) {
  if (operands.size() == 1) return operands[0];
  int64_t total = 0;
  for (const Id operand : operands) total += width(operand);
  return add({.op = Op::kConcat, .operands = operands, .width = total});
}

Id Builder::broadcast(Id operand, int64_t width) {
  if (this->width(operand) == width) return operand;
  return add({.op = Op::kBroadcast, .operands = {operand}, .width = width});
}

Region without_unused(const Region& region) {
  std::vector<bool> used(region.nodes.size());
  for (const auto& output : region.outputs) used[static_cast<size_t>(output.value)] = true;
  for (size_t i = region.nodes.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (const Id operand : region.nodes[i].operands) used[static_cast<size_t>(operand)] = true;
  }
  Region out{
      .nodes = {}, .inputs = region.inputs, .outputs = region.outputs, .num_leading_dims = region.num_leading_dims};
  std::vector<Id> number(region.nodes.size(), -1);
  for (size_t i = 0; i < region.nodes.size(); ++i) {
    if (!used[i]) continue;
    number[i] = static_cast<Id>(out.nodes.size());
    Instruction node = region.nodes[i];
    for (Id& operand : node.operands) operand = number[static_cast<size_t>(operand)];
    out.nodes.push_back(std::move(node));
  }
  for (auto& output : out.outputs) output.value = number[static_cast<size_t>(output.value)];
  return out;
}

}  // namespace dslaunch::runtime::model::fusion
