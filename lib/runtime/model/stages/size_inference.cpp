#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <vector>

#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/stages/value_kinds.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

at::Tensor stand_in(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
}

void shape_like(Stack& stack) {
  const auto value = torch::jit::pop(stack).toTensor();
  stack.emplace_back(stand_in(value.sizes()));
}

void shape_of_sizes(Stack& stack) {
  const auto sizes = torch::jit::pop(stack).toIntVector();
  stack.emplace_back(stand_in(sizes));
}

void shape_of_embedding(Stack& stack) {
  const auto indices = torch::jit::pop(stack).toTensor(), weight = torch::jit::pop(stack).toTensor();
  auto sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  stack.emplace_back(stand_in(sizes));
}

void shape_of_linear(Stack& stack) {
  const auto weight = torch::jit::pop(stack).toTensor(), input = torch::jit::pop(stack).toTensor();
  auto sizes = input.sizes().vec();
  sizes.pop_back();
  if (weight.dim() == 2) sizes.push_back(weight.size(0));
  stack.emplace_back(stand_in(sizes));
}

void broadcast_shape(Stack& stack) {
  const auto other = torch::jit::pop(stack).toTensor(), one = torch::jit::pop(stack).toTensor();
  stack.emplace_back(stand_in(at::infer_size(one.sizes(), other.sizes())));
}

constexpr char kLike[] = "dslaunch::shape_like";
constexpr char kSizes[] = "dslaunch::shape_of_sizes";
constexpr char kEmbedding[] = "dslaunch::shape_of_embedding";
constexpr char kLinear[] = "dslaunch::shape_of_linear";
constexpr char kBroadcast[] = "dslaunch::broadcast_shape";
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::shape_like(Tensor value) -> Tensor", shape_like,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::shape_of_sizes(int[] sizes) -> Tensor", shape_of_sizes,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::shape_of_embedding(Tensor weight, Tensor indices) -> Tensor", shape_of_embedding,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::shape_of_linear(Tensor input, Tensor weight) -> Tensor", shape_of_linear,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::broadcast_shape(Tensor one, Tensor other) -> Tensor", broadcast_shape,
                          c10::AliasAnalysisKind::FROM_SCHEMA)});

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

bool may_be_tensor(const Value* value) {
  return value->type()->kind() != c10::TypeKind::NoneType && value->type()->isSubtypeOf(*c10::OptionalType::ofTensor());
}

class SizeInference {
 public:
  SizeInference(FlatForward& flat, const ValueKinds& kinds) : flat_(flat), kinds_(kinds) {}

  bool run() {
    for (Node* node : flat_.nodes) {
      if (node->kind() != c10::aten::size && node->kind() != c10::aten::dim && node->kind() != c10::aten::len) continue;
      Value* tensor = node->input(0);
      if (!is_tensor(tensor) || kinds_.of(tensor) != ValueKind::kCarried) continue;
      const torch::jit::WithInsertPoint before(node);
      inserted_.clear();
      if (Value* shape = shape_of(tensor, nullptr, 0)) {
        node->replaceInput(0, shape);
        has_changed_ = true;
      } else {
        for (auto left = inserted_.rbegin(); left != inserted_.rend(); ++left) (*left)->destroy();
      }
    }
    return has_changed_;
  }

 private:
  // A call of a unit that a value was found in; null: the flattened forward itself.
  struct Frame {
    const Frame* outer;
    Node* call;
    const graph::FlatGraph& body;
  };
  static constexpr int kMaxDepth = 64;  // of operators between a value and its origin

  // A value with the same shape that every stage can compute; null: none is known.
  Value* shape_of(Value* value, const Frame* frame, int depth) {
    if (depth > kMaxDepth || !is_tensor(value)) return nullptr;
    if (value->node()->kind() == c10::prim::GetAttr) return shape_of_attribute(value->node(), frame);
    if (frame == nullptr && kinds_.of(value) != ValueKind::kCarried && kinds_.of(value) != ValueKind::kSize) {
      return insert(kLike, {value});
    }
    Node* node = value->node();
    if (node->kind() == c10::prim::Param) return shape_of_argument(value, frame, depth);
    if (const auto& row = operators::traits(node->kind()); row.elementwise) {
      return shape_of_elements(node, frame, depth);
    } else if (row.size != operators::SizeRule::kUnknown) {
      return shape_by_rule(row.size, node, frame, depth);
    }
    if (const auto unit = flat_.unit_calls.find(node); unit != flat_.unit_calls.end() && frame == nullptr) {
      const auto body = graph::flatten_forward(torch::jit::Module(unit->second));
      const Frame inner{frame, node, body};
      return shape_of(body.graph->outputs()[value->offset()], &inner, depth + 1);
    }
    return nullptr;
  }

  Value* shape_of_argument(const Value* value, const Frame* frame, int depth) {
    if (frame == nullptr || value->node() != frame->body.graph->block()->param_node()) return nullptr;
    return shape_of(frame->call->input(value->offset()), frame->outer, depth + 1);
  }

  Value* shape_by_rule(operators::SizeRule rule, Node* node, const Frame* frame, int depth) {
    switch (rule) {
      case operators::SizeRule::kLikeFirst:
        return shape_of(node->input(0), frame, depth + 1);
      case operators::SizeRule::kTableRows:
        return shape_of_two(kEmbedding, node, 0, 1, frame, depth);
      case operators::SizeRule::kLinear:
        return shape_of_two(kLinear, node, 0, 1, frame, depth);
      case operators::SizeRule::kUnknown:
        break;
    }
    return nullptr;
  }

  // That to which all tensor operands broadcast.
  Value* shape_of_elements(Node* node, const Frame* frame, int depth) {
    Value* shape = nullptr;
    for (Value* input : node->inputs()) {
      if (!may_be_tensor(input)) continue;
      Value* other = shape_of(input, frame, depth + 1);
      if (other == nullptr) return nullptr;
      shape = shape == nullptr ? other : insert(kBroadcast, {shape, other});
    }
    return shape;
  }

  Value* shape_of_two(const char* kind, Node* node, size_t one, size_t other, const Frame* frame, int depth) {
    Value* shape = shape_of(node->input(one), frame, depth + 1);
    Value* other_shape = shape ? shape_of(node->input(other), frame, depth + 1) : nullptr;
    return other_shape ? insert(kind, {shape, other_shape}) : nullptr;
  }

  // Of a parameter or buffer: its shape in the file. The tensor itself may be on another stage.
  Value* shape_of_attribute(Node* node, const Frame* frame) {
    const auto& objects = frame == nullptr ? flat_.objects : frame->body.objects;
    const auto owner = objects.find(node->input(0));
    if (owner == objects.end()) return nullptr;
    const auto held = owner->second->getAttr(node->s(c10::attr::name));
    if (!held.isTensor() || !held.toTensor().defined()) return nullptr;
    const auto& type = *owner->second->type();
    const bool is_fixed = graph::is_parameter(type, type.getAttributeSlot(node->s(c10::attr::name))) ||
                          (frame == nullptr && kinds_.of(node->output()) == ValueKind::kReplicable);
    if (!is_fixed) return nullptr;  // forward may assign another tensor
    Value* sizes = graph().insertConstant(held.toTensor().sizes().vec());
    inserted_.push_back(sizes->node());
    return insert(kSizes, {sizes});
  }

  Value* insert(const char* kind, at::ArrayRef<Value*> inputs) {
    Node* node = graph().insertNode(graph().create(c10::Symbol::fromQualString(kind), inputs));
    inserted_.push_back(node);
    return node->output();
  }
  torch::jit::Graph& graph() { return *flat_.graph; }

  FlatForward& flat_;
  const ValueKinds& kinds_;
  std::vector<Node*> inserted_;  // for the current size
  bool has_changed_ = false;
};

}  // namespace

bool infer_sizes(FlatForward& flat, const ValueKinds& kinds) {
  const bool has_changed = SizeInference(flat, kinds).run();
  if (has_changed) index_nodes(flat);
  return has_changed;
}

}  // namespace dslaunch::runtime::model::stages
