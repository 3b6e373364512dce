
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/format.hpp"
#include "runtime/model/dtypes/dtype_plan.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

const char* name_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? "fp32" : dtype == at::kHalf ? "fp16" : "bf16";
}

void narrow_operator(Stack& stack) {
  const auto dtype = torch::jit::pop(stack).toScalarType();
  const auto value = torch::jit::pop(stack);
  const bool changes = value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == at::kFloat;
  stack.push_back(changes ? c10::IValue(value.toTensor().to(dtype)) : value);
}

// Tensors without dimensions do not change the type of an elementwise operator's result: they stay as precise as they
// are, unless the operator takes only operands of one type.
void match_operator(Stack& stack) {
  const bool one_type = torch::jit::pop(stack).toBool();
  const at::Tensor like = torch::jit::pop(stack).toTensor();
  const auto value = torch::jit::pop(stack);
  const auto differs = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_floating_point() && like.is_floating_point() &&
           tensor.scalar_type() != like.scalar_type() && (one_type || tensor.dim() > 0 || like.dim() == 0);
  };
  const bool changes = value.isTensor() && differs(value.toTensor());
  stack.push_back(changes ? c10::IValue(value.toTensor().to(like.scalar_type())) : value);
}

constexpr char kNarrow[] = "dslaunch::narrow_fp32";
constexpr char kMatch[] = "dslaunch::match_type";
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::narrow_fp32(Tensor(a)? self, int dtype) -> Tensor(a)", narrow_operator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::match_type(Tensor(a)? self, Tensor other, bool one_type) -> Tensor(a)",
                          match_operator, c10::AliasAnalysisKind::FROM_SCHEMA)});

const auto kNumber = c10::Symbol::attr("dslaunch_number");  // of a node, in the order in which all are visited

std::vector<Node*> all_nodes(const torch::jit::Module& model) {
  std::vector<Node*> out;
  graph::for_every_node(model, [&](Node* node) { out.push_back(node); });
  return out;
}

bool is_call(const Node* node) {
  const auto kind = node->kind();
  return kind == c10::prim::CallMethod || kind == c10::prim::CallFunction || kind == c10::prim::fork;
}

// The floating-point type of all parameters; empty: they differ, or there are none.
std::optional<at::ScalarType> export_dtype(const torch::jit::Module& model) {
  std::optional<at::ScalarType> out;
  for (const auto& parameter : model.parameters()) {
    if (!parameter.is_floating_point()) continue;
    if (out && *out != parameter.scalar_type()) return std::nullopt;
    out = parameter.scalar_type();
  }
  return out;
}

void set_type(Node* node, at::ScalarType dtype) {
  const torch::jit::WithInsertPoint before(node);
  node->replaceInput(type_argument(node)->input, node->owningGraph()->insertConstant(static_cast<int64_t>(dtype)));
}

// At the graph's insertion point.
Value* insert_operator(const Node* user, const char* kind, at::ArrayRef<Value*> inputs) {
  auto& graph = *inputs[0]->owningGraph();
  Node* node = graph.create(c10::Symbol::fromQualString(kind), inputs);
  node->setSourceRange(user->sourceRange());
  return graph.insertNode(node)->output();
}

// Carries a plan over from the flat graph to the graphs that run. A node of a class or function that runs several times
// is in the flat graph several times; it changes only in ways that suit all of them.
class GraphEditor {
 public:
  GraphEditor(std::vector<Node*> nodes, const torch::jit::Graph& flat, at::ScalarType dtype)
      : nodes_(std::move(nodes)), dtype_(dtype), appearances_(nodes_.size()) {
    graph::for_each_node(flat.block(), [&](const Node* node) {
      if (is_numbered(node)) appearances_[number_of(node)] += 1;
    });
  }

  void apply(const DtypePlan& plan) {
    std::map<size_t, size_t> following;
    for (const Node* node : plan.follow) following[number_of(node)] += 1;
    std::map<std::pair<size_t, size_t>, size_t> before_cast;
    for (const auto& use : plan.before_cast) {
      if (is_numbered(use.user)) before_cast[{number_of(use.user), use.input}] += 1;
    }
    for (const auto& [use, times] : before_cast) {
      if (times == appearances_[use.first]) take_before_cast(nodes_[use.first], use.second);
    }
    for (const auto& operand : plan.narrow) narrow(operand);
    for (const auto& [operand, like] : plan.match) match(operand, like);
    for (const auto& [number, times] : following) {
      if (times != appearances_[number]) continue;
      set_type(nodes_[number], dtype_);
      num_following_ += 1;
    }
  }

  int num_following() const { return num_following_; }
  int num_cast_inputs() const { return static_cast<int>(edited_.size()); }

 private:
  static bool is_numbered(const Node* node) { return node->hasAttribute(kNumber); }
  static size_t number_of(const Node* node) { return static_cast<size_t>(node->i(kNumber)); }

  // Uses in the graph of the cast read what was cast; others cast back what they get.
  void take_before_cast(Node* user, size_t input) {
    Value* value = user->input(input);
    Node* cast = value->node();
    if (type_role(cast) != TypeRole::kCast) return narrow(user, input);
    auto& before = before_cast_[cast];
    if (before == nullptr) {
      const torch::jit::WithInsertPoint here(cast);
      auto& graph = *cast->owningGraph();
      before = insert_operator(cast, kNarrow, {cast->input(0), graph.insertConstant(static_cast<int64_t>(dtype_))});
    }
    user->replaceInput(input, before);
  }

  void narrow(const Operand& operand) {
    if (is_numbered(operand.user)) narrow(nodes_[number_of(operand.user)], operand.input);
  }

  void narrow(Node* user, size_t input) {
    if (!edited_.insert({user, input}).second) return;
    const torch::jit::WithInsertPoint before(user);
    Value* dtype = user->owningGraph()->insertConstant(static_cast<int64_t>(dtype_));
    user->replaceInput(input, insert_operator(user, kNarrow, {user->input(input), dtype}));
  }

  void match(const Operand& operand, const Operand& like) {
    if (!is_numbered(operand.user)) return;
    Node* user = nodes_[number_of(operand.user)];
    if (!edited_.insert({user, operand.input}).second) return;
    const torch::jit::WithInsertPoint before(user);
    const bool one_type = operators::traits(user->kind()).wants_one_type || type_role(user) == TypeRole::kSoftmax;
    Value* flag = user->owningGraph()->insertConstant(one_type);
    user->replaceInput(operand.input,
                       insert_operator(user, kMatch, {user->input(operand.input), user->input(like.input), flag}));
  }

  const std::vector<Node*> nodes_;
  const at::ScalarType dtype_;
  std::vector<size_t> appearances_;  // by number, in the flat graph
  std::map<Node*, Value*> before_cast_;
  std::set<std::pair<Node*, size_t>> edited_;  // inputs
  int num_following_ = 0;
};

// A flat copy whose nodes have the numbers of those that they are copies of.
std::shared_ptr<torch::jit::Graph> numbered_copy(const torch::jit::Module& model, const std::vector<Node*>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i]->i_(kNumber, static_cast<int64_t>(i));
  auto flat = graph::flatten_resolved(model).graph;
  for (Node* node : nodes) node->removeAttribute(kNumber);
  return flat;
}

DtypeRewrite follow_from_fp32(const torch::jit::Module& model, at::ScalarType dtype) {
  const auto nodes = all_nodes(model);
  const auto flat = numbered_copy(model, nodes);
  if (graph::any_node(flat->block(), is_call)) return {};
  const DtypePlan plan = plan_dtypes(*flat, model);
  GraphEditor editor(nodes, *flat, dtype);
  editor.apply(plan);
  DtypeRewrite out{plan.fp32_buffers, {}};
  if (editor.num_following() + editor.num_cast_inputs() > 0) {
    const std::string cast_inputs =
        editor.num_cast_inputs() == 0
            ? ""
            : fmt::format(", {} inputs of operators are cast where types differ", editor.num_cast_inputs());
    out.notes.push_back(
        fmt::format("fp32 export: {} casts follow {}{}", editor.num_following(), name_of(dtype), cast_inputs));
  }
  return out;
}

// In such an export upcasts and casts back are told apart by their types.
DtypeRewrite follow_from_half(const torch::jit::Module& model, at::ScalarType from, at::ScalarType dtype) {
  int num_following = 0;
  for (Node* node : all_nodes(model)) {
    const auto type = type_argument(node);
    if (!type || type->value != from) continue;
    set_type(node, dtype);
    num_following += 1;
  }
  const char* const reason =
      from == at::kBFloat16 ? "fp16 ends at 65504, where bf16 reaches 3.4e38: activations may overflow, and the fp32 "
                              "masters start from weights of 8 bits. Train in bf16, or export in fp32"
                            : "the fp32 masters start from weights of 11 bits";
  return {{}, {fmt::format("{} export: {} casts follow {}. {}", name_of(from), num_following, name_of(dtype), reason)}};
}

}  // namespace

DtypeRewrite follow_dtype(const torch::jit::Module& model, at::ScalarType dtype) {
  if (!is_half(dtype) || !rewrites::is_trace(model)) return {};
  const auto from = export_dtype(model);
  if (!from || *from == dtype) return {};
  if (*from == at::kFloat) return follow_from_fp32(model, dtype);
  return is_half(*from) ? follow_from_half(model, *from, dtype) : DtypeRewrite{};
}

}  // namespace dslaunch::runtime::model::dtypes
