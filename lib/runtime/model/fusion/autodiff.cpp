#include "runtime/model/fusion/autodiff.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using From = BackwardSource::From;

bool is_floating(at::ScalarType dtype) {
  return dtype != at::kBool;
}

bool varies(const Input& input) {
  return std::find(input.varies.begin(), input.varies.end(), true) != input.varies.end();
}

class Derivation {
 public:
  Derivation(const Region& forward, const std::vector<bool>& wanted, const std::vector<bool>& given, History history)
      : forward_(forward),
        history_(history),
        build_(out_.region),
        copies_(forward.nodes.size()),
        gradients_(forward.nodes.size()),
        output_of_(forward.nodes.size()),
        dtypes_(stored_dtypes(forward)) {
    out_.region.num_leading_dims = forward.num_leading_dims;
    find_path(wanted);
    for (size_t i = 0; i < forward.outputs.size(); ++i) {
      const auto& output = forward.outputs[i];
      if (output.rows == Rows::kKeep) output_of_[static_cast<size_t>(output.value)] = i;
    }
    for (size_t i = 0; i < forward.outputs.size(); ++i) {
      const auto& output = forward.outputs[i];
      if (!given[i] || !on_path_[static_cast<size_t>(output.value)]) continue;
      const Id gradient = source({From::kGradient, i}, output.dtype, forward.node(output.value).width);
      accumulate(output.value, gradient);
    }
  }

  // Of a derivation without gradients.
  std::optional<Recomputation> recompute(size_t output, const std::vector<BackwardSource>& kept,
                                         const std::vector<bool>& may_be_kept) {
    const auto is_kept = [&](const BackwardSource& source) {
      return std::find(kept.begin(), kept.end(), source) != kept.end();
    };
    const Output& result = forward_.outputs[output];
    if (result.rows != Rows::kKeep || !is_floating(result.dtype) || is_kept({From::kOutput, output})) return {};
    for (auto& read : output_of_) {
      if (read && !is_kept({From::kOutput, *read})) read.reset();
    }
    output_of_[static_cast<size_t>(result.value)].reset();
    out_.region.outputs = {{value(result.value), result.dtype}};
    out_.region = without_unused(out_.region);
    drop_unread_inputs();
    int64_t row_bytes = 0;
    for (size_t i = 0; i < out_.sources.size(); ++i) {
      const Input& input = out_.region.inputs[i];
      const BackwardSource& source = out_.sources[i];
      const bool is_row = source.from == From::kInput && !varies(input);
      if (!is_kept(source) && !(is_row && may_be_kept[source.index])) return {};
      if (is_row) continue;
      row_bytes += input.width * static_cast<int64_t>(c10::elementSize(input.dtype));
    }
    const int64_t own_bytes = forward_.node(result.value).width * static_cast<int64_t>(c10::elementSize(result.dtype));
    if (row_bytes > 2 * own_bytes) return {};
    return Recomputation{std::move(out_.region), std::move(out_.sources)};
  }

  Backward run(const std::vector<bool>& wanted) {
    for (size_t i = forward_.nodes.size(); i-- > 0;) {
      if (gradients_[i] && on_path_[i]) propagate(static_cast<Id>(i), *gradients_[i]);
    }
    for (size_t i = 0; i < forward_.nodes.size(); ++i) {
      const auto& node = forward_.nodes[i];
      if (node.op != Op::kInput || !wanted[static_cast<size_t>(node.index)] || !gradients_[i]) continue;
      const auto& input = forward_.inputs[static_cast<size_t>(node.index)];
      // An input of one row gets the sum over all rows; where there is one row in all, that sum is the row itself.
      const Output output{*gradients_[i], input.dtype, varies(input) ? Rows::kKeep : Rows::kSum};
      auto& outputs = out_.region.outputs;
      const auto place = static_cast<size_t>(std::find(outputs.begin(), outputs.end(), output) - outputs.begin());
      if (place == outputs.size()) outputs.push_back(output);
      out_.gradients.push_back({static_cast<size_t>(node.index), place});
    }
    out_.region = without_unused(out_.region);
    drop_unread_inputs();
    return std::move(out_);
  }

 private:
  // The dtype in which PyTorch would hold each value, where a cast says so: gradients that flow back through a cast are
  // rounded to what was cast.
  static std::vector<std::optional<at::ScalarType>> stored_dtypes(const Region& region) {
    std::vector<std::optional<at::ScalarType>> out;
    for (const auto& node : region.nodes) {
      if (node.op == Op::kInput) {
        out.emplace_back(region.inputs[static_cast<size_t>(node.index)].dtype);
      } else {
        out.emplace_back(node.op == Op::kCast ? std::optional(node.dtype) : std::nullopt);
      }
    }
    return out;
  }

  void find_path(const std::vector<bool>& wanted) {
    for (const auto& node : forward_.nodes) {
      bool on_path = node.op == Op::kInput && wanted[static_cast<size_t>(node.index)];
      if (node.op != Op::kDetach) {
        for (const Id operand : node.operands) on_path = on_path || on_path_[static_cast<size_t>(operand)];
      }
      on_path_.push_back(on_path);
    }
  }

  Id source(BackwardSource from, at::ScalarType dtype, int64_t width) {
    out_.sources.push_back(from);
    Input input{dtype, width, std::vector<bool>(forward_.num_leading_dims, true)};
    if (from.from == From::kInput) input = forward_.inputs[from.index];
    return build_.input(std::move(input));
  }

  // The value of a forward node, in the backward region. An output that holds its value as it is, or that a model's own
  // cast has rounded, is read; PyTorch's backward reads the rounded value as well.
  Id value(Id id) {
    auto& copy = copies_[static_cast<size_t>(id)];
    if (copy) return *copy;
    const Instruction& node = forward_.node(id);
    if (node.op == Op::kInput) {
      copy = source({From::kInput, static_cast<size_t>(node.index)}, at::kFloat, node.width);
    } else if (node.op == Op::kShareGradient && history_ == History::kNone) {
      copy = value(node.operands[0]);
    } else if (const auto output = output_of_[static_cast<size_t>(id)]; output && may_be_read(node)) {
      copy = source({From::kOutput, *output}, forward_.outputs[*output].dtype, node.width);
    } else {
      Instruction again = node;
      for (Id& operand : again.operands) operand = value(operand);
      copy = rebuild(again);
    }
    return *copy;
  }

  // The backward of a maximum looks for the columns that are equal to it, which a rounded one may not be.
  static bool may_be_read(const Instruction& node) { return node.op != Op::kConstant && node.op != Op::kRowMax; }

  Id rebuild(const Instruction& node) {
    switch (node.op) {
      case Op::kConstant:
        return build_.constant(node.number);
      case Op::kPower:
        return build_.power(node.operands[0], node.number);
      case Op::kCast:
        return build_.cast(node.operands[0], node.dtype);
      case Op::kSelect:
        return build_.select(node.operands[0], node.operands[1], node.operands[2]);
      case Op::kRowSum:
      case Op::kRowMax:
        return build_.row(node.op, node.operands[0]);
      case Op::kSlice:
        return build_.slice(node.operands[0], node.index, node.width);
      case Op::kConcat:
        return build_.concat(node.operands);
      case Op::kBroadcast:
        return build_.broadcast(node.operands[0], node.width);
      default:
        return node.operands.size() == 1 ? build_.unary(node.op, node.operands[0])
                                         : build_.binary(node.op, node.operands[0], node.operands[1]);
    }
  }

  void accumulate(Id id, Id gradient) {
    if (!on_path_[static_cast<size_t>(id)]) return;
    const int64_t width = forward_.node(id).width;
    // An operand that was shared by all columns gets their sum; a gradient may be the same in all columns.
    if (width == 1 && build_.width(gradient) > 1) gradient = build_.row(Op::kRowSum, gradient);
    if (width > 1 && build_.width(gradient) == 1) gradient = build_.broadcast(gradient, width);
    auto& sum = gradients_[static_cast<size_t>(id)];
    sum = sum ? build_.binary(Op::kAdd, *sum, gradient) : gradient;
  }

  Id mul(Id left, Id right) { return build_.binary(Op::kMultiply, left, right); }
  Id sub(Id left, Id right) { return build_.binary(Op::kSubtract, left, right); }
  Id div(Id left, Id right) { return build_.binary(Op::kDivide, left, right); }
  Id number(double value) { return build_.constant(value); }
  Id negated(Id id) { return build_.unary(Op::kNegate, id); }

  void propagate(Id id, Id g) {
    const Instruction& node = forward_.node(id);
    const auto x = [&] { return value(node.operands[0]); };
    const auto y = [&] { return value(node.operands[1]); };
    const auto result = [&] { return value(id); };
    const auto to = [&](size_t operand, Id gradient) { accumulate(node.operands[operand], gradient); };
    switch (node.op) {
      case Op::kInput:
      case Op::kConstant:
      case Op::kNot:
      case Op::kDetach:
      case Op::kLess:
      case Op::kLessEqual:
      case Op::kEqual:
        return;
      case Op::kNegate:
        return to(0, negated(g));
      case Op::kAbs: {  // 0 at 0
        const Id positive = build_.binary(Op::kLess, number(0), x());
        const Id negative = build_.binary(Op::kLess, x(), number(0));
        return to(0, mul(g, sub(positive, negative)));
      }
      case Op::kExp:
        return to(0, mul(g, result()));
      case Op::kLog:
        return to(0, div(g, x()));
      case Op::kSqrt:
        return to(0, div(mul(g, number(0.5)), result()));
      case Op::kRsqrt:
        return to(0, mul(mul(g, number(-0.5)), build_.power(result(), 3)));
      case Op::kReciprocal:
        return to(0, negated(mul(g, build_.power(result(), 2))));
      case Op::kSin:
        return to(0, mul(g, build_.unary(Op::kCos, x())));
      case Op::kCos:
        return to(0, negated(mul(g, build_.unary(Op::kSin, x()))));
      case Op::kTanh:
        return to(0, mul(g, sub(number(1), build_.power(result(), 2))));
      case Op::kSigmoid: {
        const Id s = result();
        return to(0, mul(g, mul(s, sub(number(1), s))));
      }
      case Op::kErf: {
        const Id slope = build_.unary(Op::kExp, negated(build_.power(x(), 2)));
        return to(0, mul(g, mul(slope, number(2 * std::numbers::inv_sqrtpi))));
      }
      case Op::kPower: {
        const Id slope = mul(build_.power(x(), node.number - 1), number(node.number));
        return to(0, node.number == 0 ? mul(g, number(0)) : mul(g, slope));
      }
      case Op::kCast: {
        const auto stored = dtypes_[static_cast<size_t>(node.operands[0])];
        return to(0, stored && is_floating(*stored) ? build_.cast(g, *stored) : g);
      }
      case Op::kShareGradient:
      case Op::kAdd:
        to(0, g);
        return to(1, g);
      case Op::kSubtract:
        to(0, g);
        return to(1, negated(g));
      case Op::kMultiply:
        if (is_wanted(node, 0)) to(0, mul(g, y()));
        if (is_wanted(node, 1)) to(1, mul(g, x()));
        return;
      case Op::kDivide:
        if (is_wanted(node, 0)) to(0, div(g, y()));
        if (is_wanted(node, 1)) to(1, negated(div(mul(g, x()), mul(y(), y()))));
        return;
      case Op::kMaximum:
      case Op::kMinimum: {  // equal operands share the gradient
        const bool is_maximum = node.op == Op::kMaximum;
        const Id half = mul(build_.binary(Op::kEqual, x(), y()), number(0.5));
        const Id first = is_maximum ? build_.binary(Op::kLess, y(), x()) : build_.binary(Op::kLess, x(), y());
        const Id second = is_maximum ? build_.binary(Op::kLess, x(), y()) : build_.binary(Op::kLess, y(), x());
        to(0, mul(g, build_.binary(Op::kAdd, first, half)));
        return to(1, mul(g, build_.binary(Op::kAdd, second, half)));
      }
      case Op::kSelect: {
        const Id condition = value(node.operands[0]);
        if (is_wanted(node, 1)) to(1, build_.select(condition, g, number(0)));
        if (is_wanted(node, 2)) to(2, build_.select(condition, number(0), g));
        return;
      }
      case Op::kRowSum:
        return to(0, g);
      case Op::kRowMax: {  // equal columns share the gradient
        const Id hits = build_.binary(Op::kEqual, x(), result());
        return to(0, mul(hits, div(g, build_.row(Op::kRowSum, hits))));
      }
      case Op::kSlice: {
        const int64_t total = forward_.node(node.operands[0]).width, end = node.index + node.width;
        std::vector<Id> parts;
        if (node.index > 0) parts.push_back(build_.broadcast(number(0), node.index));
        parts.push_back(wide(g, node.width));
        if (end < total) parts.push_back(build_.broadcast(number(0), total - end));
        return to(0, build_.concat(parts));
      }
      case Op::kConcat: {
        int64_t begin = 0;
        for (size_t i = 0; i < node.operands.size(); ++i) {
          const int64_t width = forward_.node(node.operands[i]).width;
          if (is_wanted(node, i)) to(i, build_.slice(wide(g, node.width), begin, width));
          begin += width;
        }
        return;
      }
      case Op::kBroadcast:
        return to(0, build_.row(Op::kRowSum, wide(g, node.width)));
    }
  }

  bool is_wanted(const Instruction& node, size_t operand) const {
    return on_path_[static_cast<size_t>(node.operands[operand])];
  }
  Id wide(Id gradient, int64_t width) {
    return build_.width(gradient) == 1 ? build_.broadcast(gradient, width) : gradient;
  }

  // Sources that only dead code read.
  void drop_unread_inputs() {
    std::vector<bool> read(out_.region.inputs.size());
    for (const auto& node : out_.region.nodes) {
      if (node.op == Op::kInput) read[static_cast<size_t>(node.index)] = true;
    }
    std::vector<int64_t> number(read.size(), -1);
    std::vector<Input> inputs;
    std::vector<BackwardSource> sources;
    for (size_t i = 0; i < read.size(); ++i) {
      if (!read[i]) continue;
      number[i] = static_cast<int64_t>(inputs.size());
      inputs.push_back(out_.region.inputs[i]);
      sources.push_back(out_.sources[i]);
    }
    for (auto& node : out_.region.nodes) {
      if (node.op == Op::kInput) node.index = number[static_cast<size_t>(node.index)];
    }
    out_.region.inputs = std::move(inputs);
    out_.sources = std::move(sources);
  }

  const Region& forward_;
  const History history_;
  Backward out_;
  Builder build_;
  std::vector<std::optional<Id>> copies_, gradients_;  // by forward node, in the backward region
  std::vector<std::optional<size_t>> output_of_;
  std::vector<std::optional<at::ScalarType>> dtypes_;
  std::vector<bool> on_path_;  // of a wanted gradient, by forward node
};

}  // namespace

Backward derive_backward(const Region& forward, const std::vector<bool>& wanted, const std::vector<bool>& given,
                         History history) {
  return Derivation(forward, wanted, given, history).run(wanted);
}

std::optional<Recomputation> derive_recomputation(const Region& forward, size_t output,
                                                  const std::vector<BackwardSource>& kept,
                                                  const std::vector<bool>& may_be_kept, History history) {
  const std::vector<bool> no_input(forward.inputs.size()), no_output(forward.outputs.size());
  return Derivation(forward, no_input, no_output, history).recompute(output, kept, may_be_kept);
}

}  // namespace dslaunch::runtime::model::fusion
