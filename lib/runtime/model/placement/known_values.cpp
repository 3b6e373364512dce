#include "runtime/model/placement/known_values.hpp"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

// Thrown inside this file alone.
struct Obstacle {
  std::string clause;
};

// PyTorch's operator that makes the same shapes as one of ours, of the first `arguments` arguments.
struct Counterpart {
  std::string_view ours;
  const char* name;
  size_t arguments;
};
constexpr Counterpart kCounterparts[] = {
    {"dslaunch::linear", "aten::linear", 3},
    {"dslaunch::matmul", "aten::matmul", 2},
    {"dslaunch::addmm", "aten::addmm", 5},
    {"dslaunch::layer_norm", "aten::layer_norm", 6},
    {"dslaunch::cross_entropy", "aten::cross_entropy_loss", 6},
};

// Results of operators for which LibTorch has no shapes of its own, from their arguments.
using Arguments = c10::ArrayRef<c10::IValue>;
struct Shape {
  const char* name;
  std::vector<int64_t> (*sizes)(Arguments arguments);
};

std::vector<int64_t> sizes_at(Arguments arguments, size_t i) {
  return arguments.at(i).toTensor().sizes().vec();
}

std::vector<int64_t> embedding_sizes(Arguments arguments) {
  auto sizes = sizes_at(arguments, 1);
  sizes.push_back(sizes_at(arguments, 0).at(1));
  return sizes;
}

std::vector<int64_t> index_select_sizes(Arguments arguments) {
  auto sizes = sizes_at(arguments, 0);
  const int64_t dim = arguments.at(1).toInt();
  sizes.at(static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(sizes.size()) : dim)) =
      arguments.at(2).toTensor().numel();
  return sizes;
}

std::vector<int64_t> attention_sizes(Arguments arguments) {
  auto sizes = sizes_at(arguments, 0);
  sizes.back() = sizes_at(arguments, 2).back();
  return sizes;
}

// Rows of the first, grouped, times a matrix for each group.
std::vector<int64_t> grouped_sizes(Arguments arguments) {
  return {sizes_at(arguments, 0).at(0), sizes_at(arguments, 1).back()};
}

std::vector<int64_t> histogram_sizes(Arguments arguments) {
  return {arguments.at(1).toInt()};
}

constexpr Shape kShapes[] = {
    {"aten::embedding", embedding_sizes},
    {"aten::index_select", index_select_sizes},
    {"aten::scaled_dot_product_attention", attention_sizes},
    {"aten::_grouped_mm", grouped_sizes},
    {"aten::histc", histogram_sizes},
};

bool holds_meta(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_meta();
  if (value.isTensorList()) {
    const auto tensors = value.toTensorVector();
    return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.is_meta(); });
  }
  if (!value.isList()) return false;
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(), holds_meta);
}

at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || tensor.dim() == 0) return tensor;
  return at::empty_like(tensor, tensor.options().device(at::kMeta));
}

c10::IValue as_meta(const c10::IValue& value) {
  if (value.isTensor()) return as_meta(value.toTensor());
  if (value.isDevice()) return at::Device(at::kMeta);
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(as_meta(tensor));
    return out;
  }
  if (value.isList() && value.toList().elementType()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
    c10::impl::GenericList out(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) out.push_back(as_meta(element));
    return out;
  }
  return value;
}

class MetaRun {
 public:
  MetaRun(const graph::FlatGraph& flat, const CallUnit& call_unit, KnownValues& known)
      : flat_(flat), call_unit_(call_unit), known_(known) {}

  void run(const Block* block) {
    for (const Node* node : block->nodes()) visit(node);
  }

 private:
  void visit(const Node* node) {
    const auto kind = node->kind();
    if (kind == c10::prim::Constant) {
      if (auto value = torch::jit::toIValue(node->output())) set(node->output(), std::move(*value));
    } else if (kind == c10::prim::GetAttr) {
      read_attribute(node);
    } else if (flat_.unit_calls.count(node) > 0) {
      call(node);
    } else if (kind == c10::prim::If) {
      choose_branch(node);
    } else if (kind == c10::prim::SetAttr) {
      return;
    } else if (!node->blocks().empty() || kind == c10::prim::CallMethod || kind == c10::prim::CallFunction ||
               node->hasAttribute(c10::attr::Subgraph)) {
      throw Obstacle{"it has a loop, a fork or a call that cannot be followed"};
    } else {
      compute(node);
    }
  }

  void set(const Value* value, c10::IValue known) { known_.values.insert_or_assign(value, std::move(known)); }
  const c10::IValue& get(const Value* value) const {
    const auto found = known_.values.find(value);
    if (found == known_.values.end()) throw Obstacle{fmt::format("the value '%{}' is not known", value->debugName())};
    return found->second;
  }

  void read_attribute(const Node* node) {
    const auto owner = flat_.objects.find(node->input(0));
    if (owner == flat_.objects.end()) throw Obstacle{"it reads an attribute of a module that is chosen when it runs"};
    c10::IValue value = owner->second->getAttr(node->s(c10::attr::name));
    // A counter is computed with, and what writes to it in place must not count.
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 0) {
      value = value.toTensor().detach().clone();
    }
    set(node->output(), as_meta(value));
  }

  void call(const Node* node) {
    std::vector<c10::IValue> arguments;
    for (size_t i = 1; i < node->inputs().size(); ++i) arguments.push_back(get(node->input(i)));
    auto result = call_unit_(node, arguments);
    if (!result.ok()) throw Obstacle{result.error()};
    set(node->output(), *std::move(result));
  }

  void choose_branch(const Node* node) {
    const c10::IValue& condition = get(node->input());
    if (!condition.isBool()) throw Obstacle{"it has a branch that depends on the data"};
    const Block* taken = node->blocks().at(condition.toBool() ? 0 : 1);
    run(taken);
    for (size_t i = 0; i < node->outputs().size(); ++i) set(node->output(i), get(taken->outputs()[i]));
  }

  void compute(const Node* node) {
    Stack stack;
    for (const Value* input : node->inputs()) stack.push_back(get(input));
    if (std::any_of(stack.begin(), stack.end(), holds_meta)) {
      for (c10::IValue& value : stack) value = as_meta(value);
    }
    try {
      const Stack arguments = stack;
      try {
        apply(node, stack);
      } catch (const c10::NotImplementedError&) {
        if (!apply_traits(node, arguments, stack)) apply_to_zeros(node, arguments, stack);
      }
    } catch (const Obstacle& obstacle) {
      throw Obstacle{fmt::format("no shapes are known for '{}': {}", node->kind().toQualString(), obstacle.clause)};
    } catch (const std::exception& error) {
      throw Obstacle{fmt::format("the shapes of '{}' depend on the data: {}", node->kind().toQualString(),
                                 std::string_view(error.what()).substr(0, std::string_view(error.what()).find('\n')))};
    }
    if (stack.size() != node->outputs().size()) throw Obstacle{"an operator returns another number of values"};
    for (size_t i = 0; i < stack.size(); ++i) set(node->output(i), std::move(stack[i]));
  }

  // LibTorch has no shapes for some operators; those of many follow from the operator's row.
  static bool apply_traits(const Node* node, const Stack& arguments, Stack& stack) {
    const auto& row = operators::traits(node->kind());
    const bool is_like_first = row.size == operators::SizeRule::kLikeFirst;
    if ((!row.elementwise && !is_like_first) || node->outputs().size() != 1) return false;
    std::vector<int64_t> sizes;
    at::ScalarType type = at::kBool;
    for (const c10::IValue& argument : arguments) {
      if (!argument.isTensor() || !argument.toTensor().defined()) continue;
      sizes = at::infer_size(sizes, argument.toTensor().sizes());
      type = c10::promoteTypes(type, argument.toTensor().scalar_type());
      if (is_like_first) break;
    }
    const bool is_comparison = row.elementwise && row.type == operators::TypeRole::kNoFloat;
    stack.assign({c10::IValue(meta_tensor(sizes, is_comparison ? at::kBool : type))});
    return true;
  }

  // The shapes of the few that are left, by what they make of zeros.
  static void apply_to_zeros(const Node* node, const Stack& arguments, Stack& stack) {
    constexpr int64_t kMaxElements = 1 << 24;
    stack = arguments;
    for (c10::IValue& value : stack) {
      if (!value.isTensor() || !holds_meta(value)) continue;
      const at::Tensor shape = value.toTensor();
      if (shape.numel() > kMaxElements) throw Obstacle{"too many elements to try"};
      value = at::zeros(shape.sizes(), shape.options().device(at::kCPU));
    }
    node->getOperation()(stack);
    for (c10::IValue& value : stack) value = as_meta(value);
  }

  static void apply(const Node* node, Stack& stack) {
    switch (node->kind()) {
      case c10::prim::ListConstruct: {
        c10::impl::GenericList list(node->output()->type()->expectRef<c10::ListType>().getElementType());
        for (c10::IValue& element : stack) list.push_back(std::move(element));
        stack.assign({c10::IValue(std::move(list))});
        return;
      }
      case c10::prim::TupleConstruct: {
        c10::IValue tuple = c10::ivalue::Tuple::create(std::move(stack));
        stack.assign({std::move(tuple)});
        return;
      }
      case c10::prim::ListUnpack: {
        const c10::IValue list = std::move(stack.at(0));
        stack = list.toListRef().vec();
        return;
      }
      case c10::prim::TupleUnpack: {
        const c10::IValue tuple = std::move(stack.at(0));
        stack.assign(tuple.toTupleRef().elements().begin(), tuple.toTupleRef().elements().end());
        return;
      }
      case c10::prim::unchecked_cast:
        return;
      default:
        break;
    }
    if (operators::is_ours(node->kind())) return apply_ours(node, stack);
    for (const auto& [name, sizes] : kShapes) {
      if (std::string_view(node->kind().toQualString()) != name || !holds_meta(stack.at(0))) continue;
      at::Tensor result = meta_tensor(sizes(stack), stack.at(0).toTensor().scalar_type());
      stack.assign({c10::IValue(std::move(result))});
      return;
    }
    node->getOperation()(stack);
  }

  static void apply_ours(const Node* node, Stack& stack) {
    const std::string_view kind = node->kind().toQualString();
    for (const auto& [ours, name, arguments] : kCounterparts) {
      if (kind != ours) continue;
      stack.resize(arguments);
      return call_operator(name, stack);
    }
    if (kind == "dslaunch::chunked_cross_entropy") return loss_of_head(stack);
    if (operators::traits(node->kind()).size == operators::SizeRule::kLikeFirst) {
      stack.resize(1);
      return;
    }
    node->getOperation()(stack);
  }

  static void call_operator(const char* name, Stack& stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  }

  // chunked_cross_entropy(input, head, bias, is_out_in, classes, target, weight, reduction, …): of reduction 0 a loss
  // for each target.
  static void loss_of_head(Stack& stack) {
    const at::Tensor input = stack.at(0).toTensor(), target = stack.at(5).toTensor();
    const bool is_reduced = stack.at(7).toInt() != 0;
    stack.clear();
    stack.emplace_back(meta_tensor(is_reduced ? at::IntArrayRef() : target.sizes(), input.scalar_type()));
  }

  const graph::FlatGraph& flat_;
  const CallUnit& call_unit_;
  KnownValues& known_;
};

}  // namespace

const c10::IValue* KnownValues::find(const Value* value) const {
  const auto found = values.find(value);
  return found == values.end() ? nullptr : &found->second;
}

std::optional<std::vector<int64_t>> KnownValues::sizes(const Value* value) const {
  const c10::IValue* known = find(value);
  if (known == nullptr || !known->isTensor() || !known->toTensor().defined()) return std::nullopt;
  return known->toTensor().sizes().vec();
}

KnownValues find_values(const graph::FlatGraph& flat, const std::vector<c10::IValue>& arguments,
                        const CallUnit& call_unit) {
  const at::NoGradGuard no_grad;
  KnownValues out;
  const auto inputs = flat.graph->inputs();
  DSL_CHECK(inputs.size() == arguments.size() + 1, "forward has an argument for each input but self");
  out.values.insert_or_assign(inputs[0], c10::IValue(flat.module._ivalue()));
  for (size_t i = 0; i < arguments.size(); ++i) out.values.insert_or_assign(inputs[i + 1], arguments[i]);
  try {
    MetaRun(flat, call_unit, out).run(flat.graph->block());
  } catch (const Obstacle& obstacle) {
    out.obstacle = obstacle.clause;
  }
  return out;
}

at::Tensor meta_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

}  // namespace dslaunch::runtime::model::placement
