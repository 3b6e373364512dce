#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/rewrites/graph_constants.hpp"

namespace dslaunch::runtime::model::rewrites {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool is_constant(const Value* value, const c10::IValue& expected) {
  const auto constant = torch::jit::toIValue(value);
  return constant && expected == *constant;
}

// The operand after the two numbers: alpha of a sum, the rounding of a quotient.
bool has_plain_options(const Node* node) {
  if (node->kind() == c10::aten::div) return node->inputs().size() == 3 && is_constant(node->input(2), "floor");
  return node->inputs().size() < 3 || is_constant(node->input(2), 1);
}

// The operator on integers with the same results; empty: there is none.
std::string on_integers(const Node* node) {
  return has_plain_options(node) ? std::string(operators::traits(node->kind()).on_integers) : "";
}

bool is_integer_tensor(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.scalar_type() == at::kLong;
}

// No operator may write to the value, and none keeps an alias of it.
bool is_only_read(const Value* value) {
  return std::all_of(value->uses().begin(), value->uses().end(), [](const torch::jit::Use& use) {
    const auto* schema = use.user->maybeSchema();
    return schema != nullptr && use.offset < schema->arguments().size() &&
           schema->arguments()[use.offset].alias_info() == nullptr &&
           std::string_view(use.user->kind().ns().toUnqualString()) == "aten";
  });
}

class SizeArithmetic {
 public:
  void visit(Node* node) {
    const std::string_view kind = node->kind().toQualString();
    if (node->inputs().size() != 1 || node->input(0)->type()->kind() != c10::TypeKind::TensorType) return;
    if (kind == "aten::Int" || kind == "aten::IntImplicit" || kind == "aten::ScalarImplicit" || kind == "aten::item") {
      if (Value* number = number_of(node->input(0))) replace(node, number);
    } else if (kind == "aten::Float" || kind == "aten::FloatImplicit" || kind == "aten::Bool") {
      if (Value* number = number_of(node->input(0))) {
        replace(node, insert(node, kind == "aten::Bool" ? "aten::Bool" : "aten::Float", {number}));
      }
    }
  }

  void remove_unused() {
    for (auto node = candidates_.rbegin(); node != candidates_.rend(); ++node) {
      if (!(*node)->hasUses()) (*node)->destroy();
    }
  }

 private:
  // The integer that the tensor holds; null: it is computed in another way.
  Value* number_of(Value* tensor) {
    const auto known = numbers_.find(tensor);
    if (known != numbers_.end()) return known->second;
    Value* number = is_only_read(tensor) ? compute(tensor->node()) : nullptr;
    numbers_[tensor] = number;
    return number;
  }

  Value* compute(Node* node) {
    if (node->kind() == c10::prim::Constant) {
      const auto constant = torch::jit::toIValue(node->output());
      if (!constant || !constant->isTensor() || !is_integer_tensor(constant->toTensor())) return nullptr;
      const torch::jit::WithInsertPoint before(node);
      return node->owningGraph()->insertConstant(constant->toTensor().item<int64_t>());
    }
    if (node->kind() == c10::prim::NumToTensor) {
      if (node->input(0)->type()->kind() != c10::TypeKind::IntType) return nullptr;
      candidates_.push_back(node);
      return node->input(0);
    }
    const std::string kind = on_integers(node);
    if (kind.empty()) return nullptr;
    std::vector<Value*> operands;
    for (size_t i = 0; i < std::min<size_t>(node->inputs().size(), 2); ++i) {
      Value* operand = node->input(i);
      if (operand->type()->kind() == c10::TypeKind::TensorType) operand = number_of(operand);
      if (operand == nullptr || operand->type()->kind() != c10::TypeKind::IntType) return nullptr;
      operands.push_back(operand);
    }
    candidates_.push_back(node);
    return insert(node, kind, operands);
  }

  static Value* insert(Node* before, const std::string& kind, at::ArrayRef<Value*> operands) {
    const torch::jit::WithInsertPoint here(before);
    return before->owningGraph()->insert(c10::Symbol::fromQualString(kind),
                                         std::vector<torch::jit::NamedValue>(operands.begin(), operands.end()));
  }

  void replace(Node* node, Value* number) {
    node->output()->replaceAllUsesWith(number);
    candidates_.push_back(node);
  }

  std::unordered_map<const Value*, Value*> numbers_;
  std::vector<Node*> candidates_;  // operands before their users
};

}  // namespace

void rewrite_size_arithmetic(const torch::jit::Module& model) {
  SizeArithmetic arithmetic;
  graph::for_every_node(model, [&](Node* node) { arithmetic.visit(node); });
  arithmetic.remove_unused();
}

}  // namespace dslaunch::runtime::model::rewrites
