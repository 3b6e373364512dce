// The operators of attention.hpp in graphs, and what puts them there.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/constants/constant_region.hpp"
#include "runtime/model/graph/node_checks.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/attention.hpp"
#include "runtime/model/layers/attention_mask.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using graph::elements;
using graph::flag;
using graph::is;
using graph::is_none;
using graph::number;
using torch::jit::Node;
using torch::jit::Value;

constexpr size_t kKey = 1, kValue = 2, kEnableGqa = 7, kRepeats = 8, kNumInputs = 9;  // inputs of our attention

struct MasksHolder : torch::CustomClassHolder {
  explicit MasksHolder(std::shared_ptr<constants::KnownMasks> held) : masks(std::move(held)) {}
  const std::shared_ptr<constants::KnownMasks> masks;
  ConvertedMasks converted;
};

// A class, not a capsule: LibTorch cannot print nodes with capsules.
const torch::class_<MasksHolder> kMasksClass("dslaunch", "AttentionMasks");

const auto kAttention = c10::Symbol::fromQualString("dslaunch::attention");
const auto kPlainAttention = c10::Symbol::fromQualString("aten::scaled_dot_product_attention");
const auto kCombination = c10::Symbol::fromQualString("dslaunch::combine_masks");
const auto kMasks = c10::Symbol::attr("masks");  // of such a node; absent: masks are taken as they are

torch::jit::Operation attention_operation(const Node* node) {
  c10::intrusive_ptr<MasksHolder> holder;
  if (node->hasAttribute(kMasks)) {
    holder = node->ival(kMasks).toCustomClass<MasksHolder>();
  }
  return [holder](torch::jit::Stack& stack) {
    const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kNumInputs); };
    at::Tensor out = attention(at(0).toTensor(), at(kKey).toTensor(), at(kValue).toTensor(),
                               {.mask = at(3).toOptional<at::Tensor>(),
                                .dropout = at(4).toDouble(),
                                .is_causal = at(5).toBool(),
                                .scale = at(6).toOptional<double>(),
                                .enable_gqa = at(kEnableGqa).toBool(),
                                .repeats = at(kRepeats).toInt(),
                                .converted = holder ? &holder->converted : nullptr},
                               holder ? holder->masks.get() : nullptr);
    torch::jit::drop(stack, kNumInputs);
    torch::jit::push(stack, std::move(out));
  };
}

torch::jit::Operation combination_operation(const Node* node) {
  auto masks = node->ival(kMasks).toCustomClass<MasksHolder>()->masks;
  return [masks = std::move(masks)](torch::jit::Stack& stack) {
    const at::Tensor other = torch::jit::pop(stack).toTensor(), one = torch::jit::pop(stack).toTensor();
    torch::jit::push(stack, combine_masks(one, other, *masks));
  };
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float "
                          "dropout_p, bool is_causal, float? scale, bool enable_gqa, int repeats) -> Tensor",
                          attention_operation, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::combine_masks(Tensor(a) one, Tensor(a) other) -> Tensor(a)", combination_operation,
                          c10::AliasAnalysisKind::FROM_SCHEMA)});

bool is_attention(const Node* node) {
  return node->kind() == kAttention || (node->kind() == kPlainAttention && node->inputs().size() + 1 == kNumInputs);
}

Node* replace_by_ours(Node* node) {
  if (node->kind() == kAttention) return node;
  const torch::jit::WithInsertPoint before(node);
  Node* ours = node->owningGraph()->create(kAttention, node->inputs(), /*num_outputs=*/1);
  ours->addInput(node->owningGraph()->insertConstant(1));
  ours->setSourceRange(node->sourceRange());
  ours->output()->copyMetadata(node->output());
  ours->insertBefore(node);
  node->replaceAllUsesWith(ours);
  node->destroy();
  return ours;
}

bool is_combination(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (kind != "aten::__and__" && kind != "aten::bitwise_and") return false;
  const auto is_tensor = [](const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); };
  return node->inputs().size() == 2 && is_tensor(node->input(0)) && is_tensor(node->input(1));
}

// Whether a node may write to a tensor in place, or calls code that cannot be looked at.
bool may_write(const Node* node) {
  if (node->kind() == c10::prim::CallMethod) return node->input(0)->type()->kind() != c10::TypeKind::ClassType;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return false;  // control flow, or a call of a function, whose nodes are visited
  return std::any_of(schema->arguments().begin(), schema->arguments().end(), [](const auto& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

void combine_by_ours(Node* node, const c10::IValue& masks) {
  Node* ours = node->owningGraph()->create(kCombination, node->inputs(), /*num_outputs=*/1);
  ours->ival_(kMasks, masks);
  ours->setSourceRange(node->sourceRange());
  ours->output()->copyMetadata(node->output());
  ours->insertBefore(node);
  node->replaceAllUsesWith(ours);
  node->destroy();
}

bool is_size(const Value* value, const Value* tensor, int64_t dim) {
  const Node* node = value->node();
  return is(node, "aten::size") && node->inputs().size() == 2 && node->input(0) == tensor &&
         number(node->input(1)) == dim;
}

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// x[:, :, :]
bool is_whole_slice(const Node* node) {
  if (!is(node, "aten::slice")) return false;
  const bool from_begin = is_none(node->input(2)) || number(node->input(2)) == 0;
  return from_begin && (is_none(node->input(3)) || number(node->input(3)) == kEnd) && number(node->input(4)) == 1;
}

Value* before_whole_slices(Value* value) {
  while (is_whole_slice(value->node())) value = value->node()->input(0);
  return value;
}

struct Repetition {
  Value* tensor = nullptr;  // before the repetition
  int64_t times = 1;
};

bool is_product(const Value* value, const Value* tensor, int64_t times) {
  const Node* node = value->node();
  if (!is(node, "aten::mul") || node->inputs().size() != 2) return false;
  return (is_size(node->input(0), tensor, 1) && number(node->input(1)) == times) ||
         (is_size(node->input(1), tensor, 1) && number(node->input(0)) == times);
}

// tensor[:, :, None].expand(b, heads, times, t, width).reshape(b, heads * times, t, width)
std::optional<Repetition> expanded(Value* value) {
  Node* reshape = value->node();
  if (!is(reshape, "aten::reshape") && !is(reshape, "aten::contiguous")) return std::nullopt;
  if (!is(reshape, "aten::reshape")) return expanded(reshape->input(0));
  Node* expand = reshape->input(0)->node();
  if (!is(expand, "aten::expand")) return std::nullopt;
  Node* unsqueeze = before_whole_slices(expand->input(0))->node();
  if (!is(unsqueeze, "aten::unsqueeze") || number(unsqueeze->input(1)) != 2) return std::nullopt;
  Value* tensor = before_whole_slices(unsqueeze->input(0));
  const auto wide = elements(expand->input(1)), flat = elements(reshape->input(1));
  if (wide.size() != 5 || flat.size() != 4) return std::nullopt;
  const auto times = number(wide[2]);
  const auto same = [&](const Value* size, int64_t dim) {
    return is_size(size, tensor, dim) || (unsqueeze->input(0) != tensor && is_size(size, unsqueeze->input(0), dim));
  };
  const auto kept = [&](const Value* size, int64_t dim) { return number(size) == -1 || same(size, dim); };
  if (!times || *times < 1 || !kept(wide[0], 0) || !kept(wide[1], 1) || !kept(wide[3], 2) || !kept(wide[4], 3)) {
    return std::nullopt;
  }
  if (!same(flat[0], 0) || !is_product(flat[1], tensor, *times) || !same(flat[2], 2) || !same(flat[3], 3)) {
    return std::nullopt;
  }
  return Repetition{tensor, *times};
}

// tensor.repeat_interleave(times, dim=1)
std::optional<Repetition> interleaved(Value* value) {
  Node* node = value->node();
  if (!is(node, "aten::repeat_interleave") || node->inputs().size() < 3) return std::nullopt;
  const auto times = number(node->input(1));
  if (!times || *times < 1 || number(node->input(2)) != 1) return std::nullopt;
  return Repetition{node->input(0), *times};
}

std::optional<Repetition> repetition(Value* value) {
  auto found = expanded(value);
  return found ? found : interleaved(value);
}

// Sizes of the repeated tensor that follow from the tensor before, so that the repetition is not made for them.
void take_sizes_before(Value* repeated, const Repetition& repetition) {
  const auto uses = repeated->uses();
  for (const auto& use : uses) {
    if (!is(use.user, "aten::size") || use.user->inputs().size() != 2) continue;
    const auto dim = number(use.user->input(1));
    if (dim && *dim != 1 && *dim != -3 && *dim >= -4 && *dim <= 3) use.user->replaceInput(0, repetition.tensor);
  }
}

void collect_producers(Node* node, std::vector<Node*>& out) {
  if (!constants::is_repeatable(node) || std::find(out.begin(), out.end(), node) != out.end()) return;
  out.push_back(node);
  for (Value* input : node->inputs()) collect_producers(input->node(), out);
}

// Destroys these nodes, and what was computed for them alone.
void remove_unused(std::initializer_list<Node*> nodes) {
  std::vector<Node*> candidates;
  for (Node* node : nodes) collect_producers(node, candidates);
  std::sort(candidates.begin(), candidates.end(),
            [](const Node* one, const Node* other) { return one != other && one->isAfter(other); });
  for (Node* node : candidates) {
    if (!node->hasUses()) node->destroy();
  }
}

bool group_heads(Node* node) {
  if (flag(node->input(kEnableGqa)) != false) return false;
  if (node->kind() == kAttention && number(node->input(kRepeats)) != 1) return false;
  Value *const key = node->input(kKey), *const value = node->input(kValue);
  const auto of_key = repetition(key), of_value = repetition(value);
  if (!of_key || !of_value || of_key->times != of_value->times || of_key->times == 1) return false;
  node = replace_by_ours(node);
  node->replaceInput(kKey, of_key->tensor);
  node->replaceInput(kValue, of_value->tensor);
  const torch::jit::WithInsertPoint before(node);
  node->replaceInput(kRepeats, node->owningGraph()->insertConstant(of_key->times));
  take_sizes_before(key, *of_key);
  if (value != key) take_sizes_before(value, *of_value);
  remove_unused({key->node(), value->node()});
  return true;
}

}  // namespace

void simplify_attention_masks(const torch::jit::Module& model, const std::shared_ptr<constants::KnownMasks>& masks) {
  const c10::IValue holder(c10::make_intrusive<MasksHolder>(masks));  // one: nodes that LibTorch finds equal stay so
  bool any_writes = false;
  graph::for_every_node(model, [&](Node* node) { any_writes |= may_write(node); });
  graph::for_every_node(model, [&](Node* node) {
    if (is_attention(node)) {
      replace_by_ours(node)->ival_(kMasks, holder);
    } else if (!any_writes && is_combination(node)) {  // the result may share memory with an operand
      combine_by_ours(node, holder);
    }
  });
}

int group_attention_heads(const torch::jit::Module& model) {
  int count = 0;
  graph::for_every_node(model, [&](Node* node) {
    if (is_attention(node)) count += group_heads(node) ? 1 : 0;
  });
  return count;
}

}  // namespace dslaunch::runtime::model::layers
