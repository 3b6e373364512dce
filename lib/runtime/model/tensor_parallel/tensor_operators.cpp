#include "runtime/model/tensor_parallel/tensor_operators.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/random_state.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Operation;
using torch::jit::Stack;

constexpr char kKeptGroup[] = "group";
const auto kGroup = c10::Symbol::attr("tensor_group");
const auto kDim = c10::Symbol::attr("sharded_dim");
const auto kLayout = c10::Symbol::attr("layout");  // for each rank the number of its ranges, then their ends

class Copy : public torch::autograd::Function<Copy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& whole, const TensorGroupPtr& group) {
    context->saved_data[kKeptGroup] = group;
    return whole.view_as(whole);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto group = context->saved_data[kKeptGroup].toCustomClass<TensorGroup>();
    return {group->all_reduce(upstream[0]), {}};
  }
};

class Reduce : public torch::autograd::Function<Reduce> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& partial, const TensorGroupPtr& group) {
    return group->all_reduce(partial);
  }
  static variable_list backward(AutogradContext*, variable_list upstream) { return {upstream[0], {}}; }
};

class Gather : public torch::autograd::Function<Gather> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, int64_t dim, const Layout& layout,
                            const TensorGroupPtr& group) {
    const auto& own = layout.at(static_cast<size_t>(group->rank()));
    std::vector<int64_t> ends;
    for (const Range& range : own) ends.insert(ends.end(), {range.begin, range.end});
    context->saved_data["dim"] = dim;
    context->saved_data["ends"] = ends;
    return group->all_gather(part, dim, layout);
  }
  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto ends = context->saved_data["ends"].toIntVector();
    std::vector<Range> own;
    for (size_t i = 0; i < ends.size(); i += 2) own.push_back({ends[i], ends[i + 1]});
    return {part_of(upstream[0], context->saved_data["dim"].toInt(), own), {}, {}, {}};
  }
};

// Position in the rank's part of each index of the whole dim, and whether the rank has it; 0 where it has not.
std::pair<at::Tensor, at::Tensor> local_indices(const at::Tensor& indices, const std::vector<Range>& own) {
  at::Tensor local = at::zeros_like(indices), has = at::zeros_like(indices, indices.options().dtype(at::kBool));
  int64_t begin = 0;
  for (const Range& range : own) {
    const at::Tensor inside = indices.ge(range.begin).logical_and_(indices.lt(range.end));
    local = at::where(inside, indices - (range.begin - begin), local);
    has = has.logical_or(inside);
    begin += range.size();
  }
  return {std::move(local), std::move(has)};
}

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

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            int64_t reduction, int64_t ignore_index, bool in_float, const Layout& layout,
                            const TensorGroupPtr& group) {
    const auto& own = own_ranges(layout, group);
    const at::Tensor values = logits.to(at::kFloat);
    const int64_t rows = values.size(0);
    const at::Tensor counts = labels.ne(ignore_index);
    const auto [targets, has_target] = local_indices(labels, own);
    // Of each row, in this order: maximum, sum of exponentials above it, the target's logit.
    const at::Tensor facts = at::zeros({3, rows}, values.options());
    facts[0].fill_(-std::numeric_limits<float>::infinity());
    if (values.size(1) > 0) {
      facts[0].copy_(values.amax(1));
      facts[1].copy_((values - facts[0].unsqueeze(1)).exp_().sum(1));
      facts[2].copy_(values.gather(1, targets.unsqueeze(1)).squeeze(1).masked_fill(has_target.logical_not(), 0));
    }
    const at::Tensor all = group->stacked(facts);
    const at::Tensor maximum = all.select(1, 0).amax(0);
    const at::Tensor sum = (all.select(1, 1) * (all.select(1, 0) - maximum).exp()).sum(0);
    const at::Tensor log_sum = maximum + sum.log();
    at::Tensor losses = (log_sum - all.select(1, 2).sum(0)).masked_fill(counts.logical_not(), 0);
    at::Tensor weight = at::ones({}, values.options());
    if (reduction == at::Reduction::Mean) weight = counts.sum().to(at::kFloat).reciprocal();
    if (reduction != at::Reduction::None) losses = losses.sum() * weight;
    context->save_for_backward({logits, targets, has_target, counts, log_sum, weight});
    return in_float ? losses : losses.to(logits.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &has_target = saved[2], &counts = saved[3];
    at::Tensor gradient = (logits.to(at::kFloat) - saved[4].unsqueeze(1)).exp_();
    if (gradient.size(1) > 0) {
      gradient.scatter_add_(1, targets.unsqueeze(1), has_target.to(at::kFloat).neg_().unsqueeze(1));
    }
    const at::Tensor of_rows = (upstream[0].to(at::kFloat) * saved[5]).expand({logits.size(0)}) * counts;
    gradient.mul_(of_rows.unsqueeze(1));
    return {gradient.to(logits.scalar_type()), {}, {}, {}, {}, {}, {}};
  }
};

// The operators as TorchScript runs them: arguments on the stack, the rest of the node.
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

Operation run_gather(const Node* node) {
  return [group = tensor_group_of(node), dim = node->i(kDim), layout = layout_of(node)](Stack& stack) {
    torch::jit::push(stack, gather_from_tensor_group(torch::jit::pop(stack).toTensor(), dim, layout, group));
  };
}

Operation run_own_slice(const Node* node) {
  return [group = tensor_group_of(node), dim = node->i(kDim), layout = layout_of(node)](Stack& stack) {
    torch::jit::push(stack, own_slice(torch::jit::pop(stack).toTensor(), dim, layout, group));
  };
}

Operation run_embedding(const Node* node) {
  return [group = tensor_group_of(node), layout = layout_of(node)](Stack& stack) {
    at::Tensor weight, ids;
    int64_t padding_idx = -1;
    bool scale_grad_by_freq = false, sparse = false;
    torch::jit::pop(stack, weight, ids, padding_idx, scale_grad_by_freq, sparse);
    torch::jit::push(stack, embedding_of_slice(weight, ids, padding_idx, scale_grad_by_freq, sparse, layout, group));
  };
}

Operation run_cross_entropy(const Node* node) {
  return [group = tensor_group_of(node), layout = layout_of(node)](Stack& stack) {
    at::Tensor logits, labels;
    int64_t reduction = at::Reduction::Mean, ignore_index = -100;
    bool in_float = false;
    torch::jit::pop(stack, logits, labels, reduction, ignore_index, in_float);
    torch::jit::push(stack, cross_entropy_of_slice(logits, labels, reduction, ignore_index, in_float, layout, group));
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
    declared("dslaunch::gather_from_tensor_group(Tensor part) -> Tensor", run_gather),
    declared("dslaunch::own_slice(Tensor(a) whole) -> Tensor(a)", run_own_slice),
    declared("dslaunch::embedding_of_slice(Tensor weight, Tensor ids, int padding_idx, bool scale_grad_by_freq, "
             "bool sparse) -> Tensor",
             run_embedding),
    declared("dslaunch::cross_entropy_of_slice(Tensor logits, Tensor labels, int reduction, int ignore_index, "
             "bool in_float) -> Tensor",
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

at::Tensor reduce_from_tensor_group(const at::Tensor& partial, const TensorGroupPtr& group) {
  return Reduce::apply(partial, group);
}

at::Tensor gather_from_tensor_group(const at::Tensor& part, int64_t dim, const Layout& layout,
                                    const TensorGroupPtr& group) {
  return Gather::apply(part, dim < 0 ? dim + part.dim() : dim, layout, group);
}

at::Tensor own_slice(const at::Tensor& whole, int64_t dim, const Layout& layout, const TensorGroupPtr& group) {
  return part_of(whole, dim, own_ranges(layout, group));
}

at::Tensor embedding_of_slice(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx,
                              bool scale_grad_by_freq, bool sparse, const Layout& layout, const TensorGroupPtr& group) {
  const auto& own = own_ranges(layout, group);
  const auto [local, has] = local_indices(ids, own);
  if (weight.size(0) == 0) {
    auto shape = ids.sizes().vec();
    shape.push_back(weight.size(1));
    return at::zeros(shape, weight.options());
  }
  // Row 0 stands in for the rows of other ranks; nothing of it passes, forward or backward.
  const at::Tensor rows = at::embedding(weight, local, local_index(padding_idx, own), scale_grad_by_freq, sparse);
  return rows.masked_fill(has.logical_not().unsqueeze(-1), 0);
}

at::Tensor cross_entropy_of_slice(const at::Tensor& logits, const at::Tensor& labels, int64_t reduction,
                                  int64_t ignore_index, bool in_float, const Layout& layout,
                                  const TensorGroupPtr& group) {
  return CrossEntropy::apply(logits, labels, reduction, ignore_index, in_float, layout, group);
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

void set_layout(Node* node, int64_t dim, const Layout& layout) {
  std::vector<int64_t> numbers;
  for (const auto& ranges : layout) {
    numbers.push_back(static_cast<int64_t>(ranges.size()));
    for (const Range& range : ranges) numbers.insert(numbers.end(), {range.begin, range.end});
  }
  node->i_(kDim, dim)->is_(kLayout, std::move(numbers));
}

TensorGroupPtr tensor_group_of(const Node* node) {
  return node->ival(kGroup).toCustomClass<TensorGroup>();
}

Layout layout_of(const Node* node) {
  Layout out;
  const auto& numbers = node->is(kLayout);
  for (size_t i = 0; i < numbers.size();) {
    auto& ranges = out.emplace_back();
    for (int64_t left = numbers[i++]; left > 0; --left, i += 2) ranges.push_back({numbers[i], numbers[i + 1]});
  }
  return out;
}

torch::jit::Value* insert_tensor_operator(torch::jit::Graph& graph, const char* name, torch::jit::Value* operand,
                                          const TensorGroupPtr& group, int64_t dim, const Layout& layout) {
  Node* node = graph.insertNode(graph.create(c10::Symbol::fromQualString(name), {operand}));
  set_tensor_group(node, group);
  set_layout(node, dim, layout);
  node->output()->setType(c10::TensorType::get());
  return node->output();
}

}  // namespace dslaunch::runtime::model::tensor_parallel
