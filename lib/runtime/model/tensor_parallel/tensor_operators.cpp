#include "runtime/model/tensor_parallel/tensor_operators.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/random_state.hpp"
#include "runtime/model/tensor_parallel/sharded_cross_entropy.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Operation;
using torch::jit::Stack;

constexpr char kKeptGroup[] = "group";
const auto kGroup = c10::Symbol::attr("tensor_group");
const auto kLayout = c10::Symbol::attr("layout");

// For each rank the number of its ranges, then their ends.
std::vector<int64_t> numbers_of(const Layout& layout) {
  std::vector<int64_t> out;
  for (const auto& ranges : layout) {
    out.push_back(static_cast<int64_t>(ranges.size()));
    for (const Range& range : ranges) out.insert(out.end(), {range.begin, range.end});
  }
  return out;
}

Layout layout_from(const std::vector<int64_t>& numbers) {
  Layout out;
  for (size_t i = 0; i < numbers.size();) {
    auto& ranges = out.emplace_back();
    for (int64_t left = numbers[i++]; left > 0; --left, i += 2) ranges.push_back({numbers[i], numbers[i + 1]});
  }
  return out;
}

TensorGroupPtr kept_group(const AutogradContext& context) {
  return context.saved_data.at(kKeptGroup).toCustomClass<TensorGroup>();
}

at::Tensor beside_postponed_gemms(const std::function<at::Tensor()>& collective, TensorGroup& group) {
  const auto started = group.start(collective);
  units::run_postponed_gemms();
  group.wait(started);
  return started.tensor;
}

constexpr char kKeptDim[] = "dim", kKeptLength[] = "length";

// The backward of each is another one of them, so that it can be differentiated again.
class Copy : public torch::autograd::Function<Copy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& whole, const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    return whole.view_as(whole);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto group = kept_group(*context);
    if (at::GradMode::is_enabled() || !group->overlaps()) return {reduce_from_tensor_group(upstream[0], group), {}};
    return {beside_postponed_gemms([&] { return group->all_reduce(upstream[0]); }, *group), {}};
  }
};

class Reduce : public torch::autograd::Function<Reduce> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& partial, const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    return group->all_reduce(partial);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    return {copy_to_tensor_group(upstream[0], kept_group(*context)), {}};
  }
};

class Gather : public torch::autograd::Function<Gather> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, int64_t dim, const Layout& layout,
                            const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    context->saved_data["dim"] = dim;
    context->saved_data["layout"] = numbers_of(layout);
    return group->all_gather(part, dim, layout);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto group = kept_group(*context);
    const Layout layout = layout_from(context->saved_data["layout"].toIntVector());
    const int64_t dim = context->saved_data["dim"].toInt();
    return {own_slice(copy_to_tensor_group(upstream[0], group), dim, layout, group), {}, {}, {}};
  }
};

class ReduceToPositions : public torch::autograd::Function<ReduceToPositions> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& partial, int64_t dim,
                            const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    context->saved_data[kKeptDim] = dim;
    context->saved_data[kKeptLength] = partial.size(dim);
    return group->reduce_scatter(partial, dim);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    return {gather_for_parts(upstream[0], context->saved_data[kKeptDim].toInt(),
                             context->saved_data[kKeptLength].toInt(), kept_group(*context)),
            {},
            {}};
  }
};

class TakePositions : public torch::autograd::Function<TakePositions> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& whole, int64_t dim,
                            const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    context->saved_data[kKeptDim] = dim;
    context->saved_data[kKeptLength] = whole.size(dim);
    const Range own = own_positions(whole.size(dim), *group);
    return whole.narrow(dim, own.begin, own.size()).clone(at::MemoryFormat::Contiguous);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    return {gather_positions(upstream[0], context->saved_data[kKeptDim].toInt(),
                             context->saved_data[kKeptLength].toInt(), kept_group(*context)),
            {},
            {}};
  }
};

// `sums`: the gradient of the result is a sum over the ranks.
template <bool sums>
class GatherPositions : public torch::autograd::Function<GatherPositions<sums>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, int64_t dim, int64_t length,
                            const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    context->saved_data[kKeptDim] = dim;
    return group->all_gather(part, dim, layout_of_positions(length, group->size()));
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto group = kept_group(*context);
    const int64_t dim = context->saved_data[kKeptDim].toInt();
    return {own_part(upstream[0], dim, group), {}, {}, {}};
  }

 private:
  static at::Tensor own_part(const at::Tensor& gradient, int64_t dim, const TensorGroupPtr& group) {
    if (!sums) return take_positions(gradient, dim, group);
    if (at::GradMode::is_enabled() || !group->overlaps()) return reduce_to_positions(gradient, dim, group);
    return beside_postponed_gemms([&] { return group->reduce_scatter(gradient, dim); }, *group);
  }
};

// Where the rank has index `whole`; -1: it has not.
int64_t local_index(int64_t whole, const std::vector<Range>& own) {
  int64_t begin = 0;
  for (const Range& range : own) {
    if (whole >= range.begin && whole < range.end) return whole - range.begin + begin;
    begin += range.size();
  }
  return -1;
}

const std::vector<Range>& own_ranges(const Layout& layout, const TensorGroupPtr& group) {
  return layout.at(static_cast<size_t>(group->rank()));
}

// The operators as TorchScript runs them: arguments on the stack, the group of the node. (All nodes of a graph that
// have the same operator run what the first one was compiled to: only what they have in common may be read off a node.)
struct Cut {
  at::Tensor tensor;
  int64_t dim = 0;
  Layout layout;
};
Cut pop_cut(Stack& stack) {
  const Layout layout = layout_from(torch::jit::pop(stack).toIntVector());
  const int64_t dim = torch::jit::pop(stack).toInt();
  return {torch::jit::pop(stack).toTensor(), dim, layout};
}

Operation run_copy(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    torch::jit::push(stack, copy_to_tensor_group(torch::jit::pop(stack).toTensor(), group));
  };
}

Operation run_reduce(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    torch::jit::push(stack, reduce_from_tensor_group(torch::jit::pop(stack).toTensor(), group));
  };
}

Operation run_reduce_in_place(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    torch::jit::push(stack, group->sum_in_place(torch::jit::pop(stack).toTensor()));
  };
}

Operation run_gather(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    const auto [part, dim, layout] = pop_cut(stack);
    torch::jit::push(stack, gather_from_tensor_group(part, dim, layout, group));
  };
}

Operation run_own_slice(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    const auto [whole, dim, layout] = pop_cut(stack);
    torch::jit::push(stack, own_slice(whole, dim, layout, group));
  };
}

template <at::Tensor (*convert)(const at::Tensor&, int64_t, const TensorGroupPtr&)>
Operation run_to_positions(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    at::Tensor tensor;
    int64_t dim = 0;
    torch::jit::pop(stack, tensor, dim);
    torch::jit::push(stack, convert(tensor, dim, group));
  };
}

template <at::Tensor (*gather)(const at::Tensor&, int64_t, int64_t, const TensorGroupPtr&)>
Operation run_gather_positions(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    at::Tensor part;
    int64_t dim = 0, length = 0;
    torch::jit::pop(stack, part, dim, length);
    torch::jit::push(stack, gather(part, dim, length, group));
  };
}

Operation run_own_length(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    torch::jit::push(stack, own_positions(torch::jit::pop(stack).toInt(), *group).size());
  };
}

Operation run_embedding(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    const Layout layout = layout_from(torch::jit::pop(stack).toIntVector());
    at::Tensor weight, ids;
    int64_t padding_idx = -1;
    bool scale_grad_by_freq = false, sparse = false;
    torch::jit::pop(stack, weight, ids, padding_idx, scale_grad_by_freq, sparse);
    torch::jit::push(stack, embedding_of_slice(weight, ids, padding_idx, scale_grad_by_freq, sparse, layout, group));
  };
}

Operation run_cross_entropy(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    const auto classes = c10::make_intrusive<SharedClasses>(layout_from(torch::jit::pop(stack).toIntVector()), group);
    at::Tensor logits, labels;
    c10::IValue class_weights;
    LossSettings settings;
    torch::jit::pop(stack, logits, labels, class_weights, settings.reduction, settings.ignore_index,
                    settings.label_smoothing, settings.in_float);
    settings.class_weights = class_weights.toOptional<at::Tensor>();
    torch::jit::push(stack, cross_entropy_of_slice(logits, labels, settings, classes));
  };
}

Operation run_dropout(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    at::Tensor part;
    double probability = 0;
    bool train = false;
    torch::jit::pop(stack, part, probability, train);
    torch::jit::push(stack, dropout_of_slice(part, probability, train, group));
  };
}

Operation run_attention(const Node* node) {
  return [group = tensor_group_of(node)](Stack& stack) {
    at::Tensor query, key, value;
    c10::IValue mask, scale;
    double dropout = 0;
    bool is_causal = false, enable_gqa = false;
    torch::jit::pop(stack, query, key, value, mask, dropout, is_causal, scale, enable_gqa);
    torch::jit::push(stack, attention_of_slice(query, key, value, mask.toOptional<at::Tensor>(), dropout, is_causal,
                                               scale.toOptional<double>(), enable_gqa, group));
  };
}

torch::jit::Operator declared(const std::string& schema, Operation (*run)(const Node*)) {
  return torch::jit::Operator(schema, run, c10::AliasAnalysisKind::FROM_SCHEMA);
}

const torch::jit::RegisterOperators kRegistration({
    declared("dslaunch::copy_to_tensor_group(Tensor(a) whole) -> Tensor(a)", run_copy),
    declared("dslaunch::reduce_from_tensor_group(Tensor partial) -> Tensor", run_reduce),
    declared("dslaunch::reduce_in_tensor_group(Tensor partial) -> Tensor", run_reduce_in_place),
    declared("dslaunch::gather_from_tensor_group(Tensor part, int dim, int[] layout) -> Tensor", run_gather),
    declared("dslaunch::own_slice(Tensor(a) whole, int dim, int[] layout) -> Tensor(a)", run_own_slice),
    declared("dslaunch::reduce_to_positions(Tensor partial, int dim) -> Tensor", run_to_positions<reduce_to_positions>),
    declared("dslaunch::take_positions(Tensor whole, int dim) -> Tensor", run_to_positions<take_positions>),
    declared("dslaunch::gather_positions(Tensor part, int dim, int length) -> Tensor",
             run_gather_positions<gather_positions>),
    declared("dslaunch::gather_for_parts(Tensor part, int dim, int length) -> Tensor",
             run_gather_positions<gather_for_parts>),
    declared("dslaunch::own_length(int length) -> int", run_own_length),
    declared("dslaunch::embedding_of_slice(Tensor weight, Tensor ids, int padding_idx, bool scale_grad_by_freq, "
             "bool sparse, int[] layout) -> Tensor",
             run_embedding),
    declared("dslaunch::cross_entropy_of_slice(Tensor logits, Tensor labels, Tensor? weight, int reduction, "
             "int ignore_index, float label_smoothing, bool in_float, int[] layout) -> Tensor",
             run_cross_entropy),
    declared("dslaunch::dropout_of_slice(Tensor part, float p, bool train) -> Tensor", run_dropout),
    declared("dslaunch::attention_of_slice(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, "
             "bool is_causal, float? scale, bool enable_gqa) -> Tensor",
             run_attention),
});

}  // namespace

at::Tensor copy_to_tensor_group(const at::Tensor& whole, const TensorGroupPtr& group) {
  return Copy::apply(whole, group);
}

bool is_reduced_in_backward(const at::Tensor& value) {
  auto* const node = value.grad_fn().get();
  const auto* copy = dynamic_cast<torch::autograd::CppNode<Copy>*>(node);
  if (copy != nullptr) return kept_group(copy->ctx_)->overlaps();
  const auto* gather = dynamic_cast<torch::autograd::CppNode<GatherPositions</*sums=*/true>>*>(node);
  return gather != nullptr && kept_group(gather->ctx_)->overlaps();
}

at::Tensor reduce_to_positions(const at::Tensor& partial, int64_t dim, const TensorGroupPtr& group) {
  return ReduceToPositions::apply(partial, dim, group);
}

at::Tensor take_positions(const at::Tensor& whole, int64_t dim, const TensorGroupPtr& group) {
  return TakePositions::apply(whole, dim, group);
}

at::Tensor gather_positions(const at::Tensor& part, int64_t dim, int64_t length, const TensorGroupPtr& group) {
  return GatherPositions</*sums=*/false>::apply(part, dim, length, group);
}

at::Tensor gather_for_parts(const at::Tensor& part, int64_t dim, int64_t length, const TensorGroupPtr& group) {
  return GatherPositions</*sums=*/true>::apply(part, dim, length, group);
}

at::Tensor reduce_from_tensor_group(const at::Tensor& partial, const TensorGroupPtr& group) {
  return Reduce::apply(partial, group);
}

at::Tensor gather_from_tensor_group(const at::Tensor& part, int64_t dim, const Layout& layout,
                                    const TensorGroupPtr& group) {
  return Gather::apply(part, dim < 0 ? dim + part.dim() : dim, layout, group);
}

at::Tensor own_slice(const at::Tensor& whole, int64_t dim, const Layout& layout, const TensorGroupPtr& group) {
  const auto& own = own_ranges(layout, group);
  const int64_t length = whole_length_of(layout);
  if (whole.size(dim) <= length) return part_of(whole, dim, own);
  const int64_t at = dim < 0 ? dim + whole.dim() : dim;
  return part_of(whole.unflatten(at, {-1, length}), at + 1, own).flatten(at, at + 1);
}

at::Tensor embedding_of_slice(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx,
                              bool scale_grad_by_freq, bool sparse, const Layout& layout, const TensorGroupPtr& group) {
  const auto& own = own_ranges(layout, group);
  const auto [local, is_own] = local_indices(ids, own);
  const int64_t padding = local_index(padding_idx, own);
  // A row stands in for those of other ranks; nothing of it passes, forward or backward. Where gradients are divided by
  // the numbers of uses, or the rank has no row, it is one more row.
  if (scale_grad_by_freq || weight.size(0) == 0) {
    const at::Tensor rows = at::cat({weight, at::zeros({1, weight.size(1)}, weight.options())});
    return at::embedding(rows, local.masked_fill(is_own.logical_not(), weight.size(0)), padding, scale_grad_by_freq)
        .masked_fill(is_own.logical_not().unsqueeze(-1), 0);
  }
  const at::Tensor rows = at::embedding(weight, local, padding, scale_grad_by_freq, sparse);
  return rows.masked_fill(is_own.logical_not().unsqueeze(-1), 0);
}

at::Tensor dropout_of_slice(const at::Tensor& part, double probability, bool train, const TensorGroupPtr& group) {
  if (!train || probability == 0) return at::dropout(part, probability, train);
  const device::RankRandomScope own(part.device(), group->rank(), group->size());
  return at::dropout(part, probability, train);
}

at::Tensor attention_of_slice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                              std::optional<double> scale, bool enable_gqa, const TensorGroupPtr& group) {
  const auto attend = [&] {
    return at::scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa);
  };
  if (dropout == 0) return attend();
  const device::RankRandomScope own(query.device(), group->rank(), group->size());
  return attend();
}

void set_tensor_group(Node* node, const TensorGroupPtr& group) {
  node->ival_(kGroup, c10::IValue(group));
}

void set_layout(Node* node, const Layout& layout) {
  node->is_(kLayout, numbers_of(layout));
}

TensorGroupPtr tensor_group_of(const Node* node) {
  return node->hasAttribute(kGroup) ? node->ival(kGroup).toCustomClass<TensorGroup>() : TensorGroupPtr();
}

Layout layout_of(const Node* node) {
  return layout_from(node->is(kLayout));
}

torch::jit::Value* insert_layout(torch::jit::Graph& graph, const Layout& layout) {
  return graph.insertConstant(numbers_of(layout));
}

torch::jit::Value* insert_tensor_operator(torch::jit::Graph& graph, const char* name,
                                          at::ArrayRef<torch::jit::Value*> operands, const TensorGroupPtr& group) {
  Node* node = graph.insertNode(graph.create(c10::Symbol::fromQualString(name), operands));
  set_tensor_group(node, group);
  node->output()->setType(c10::TensorType::get());
  return node->output();
}

torch::jit::Value* insert_cut(torch::jit::Graph& graph, const char* name, torch::jit::Value* operand,
                              const TensorGroupPtr& group, int64_t dim, const Layout& layout) {
  torch::jit::Value *at = graph.insertConstant(dim), *parts = insert_layout(graph, layout);
  torch::jit::Value* out = insert_tensor_operator(graph, name, operand, group);
  out->node()->addInput(at);
  out->node()->addInput(parts);
  return out;
}

}  // namespace dslaunch::runtime::model::tensor_parallel
