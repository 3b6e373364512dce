#include "runtime/model/dtypes/dtype_plan.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/model/dtypes/dtype_values.hpp"

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Tensors without dimensions and Python's numbers take the type of what they are combined with.
bool is_number(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && (!constant->isTensor() || !constant->toTensor().defined() || constant->toTensor().dim() == 0);
}

bool is_fp32_constant(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isTensor() && constant->toTensor().defined() && constant->toTensor().dim() > 0 &&
         constant->toTensor().scalar_type() == at::kFloat;
}

bool has_fractional_number(const Node* node) {
  return std::any_of(node->inputs().begin(), node->inputs().end(), [](const Value* input) {
    const auto constant = torch::jit::toIValue(input);
    return constant && (constant->isDouble() || (constant->isTensor() && constant->toTensor().defined() &&
                                                 at::isFloatingType(constant->toTensor().scalar_type())));
  });
}

// Operators that make integers from integers.
bool may_stay_integer(const Node* node) {
  return operators::traits(node->kind()).keeps_integers && !has_fractional_number(node);
}

class Planner : private TypesInRun {
 public:
  Planner(torch::jit::Graph& graph, const torch::jit::Module& model) : origins_(graph, model) {}

  DtypePlan plan() {
    decide_buffers();
    propagate();
    knows_upcasts_ = true;
    propagate();
    keep_casts_of_outputs();
    propagate();
    for (Node* node : origins_.nodes()) decide_island(node);
    propagate();  // what islands meet has changed
    for (Node* node : origins_.nodes()) record_cast(node);
    return std::move(plan_);
  }

 private:
  // Whether an operand may be fp32 in the run.
  bool is_fp32(const Operand& operand) const override {
    const Operand entry = entry_of(operand);
    const Node* node = entry.value()->node();
    if (is_decided_cast(node)) return fp32_uses_.count(entry) > 0;
    return fp32_.count(entry.value()) > 0;
  }
  bool depends(const Operand& operand) const override {
    return origins_.depends_on_parameter(entry_of(operand).value());
  }
  bool is_decided_cast(const Node* node) const override {
    return is_cast_to_fp32(node) && origins_.depends_on_parameter(node->output());
  }

  bool is_kept_cast(const Node* node) const override {
    const auto& uses = node->output()->uses();
    return std::any_of(uses.begin(), uses.end(), [&](const auto& use) {
      return fp32_uses_.count({use.user, use.offset}) > 0;
    });
  }

  static bool is_cast_to_fp32(const Node* node) {
    return type_role(node) == TypeRole::kCast && type_argument(node)->value == at::kFloat;
  }

  // Repeats, since a use may meet an operand that is computed after its cast. Uses only ever become fp32.
  void propagate() {
    do {
      changed_ = false;
      plan_.narrow.clear();
      plan_.match.clear();
      for (Node* node : origins_.nodes()) take(node);
    } while (changed_);
  }

  void take(Node* node) {
    if (is_decided_cast(node)) decide_cast(node);
    const bool fp32 = type_of_result(node);
    for (const Value* output : node->outputs()) {
      if (origins_.is_integer(output)) continue;
      if (fp32)
        fp32_.insert(output);
      else
        fp32_.erase(output);
    }
  }

  void decide_cast(Node* cast) {
    const bool casts_back = is_fp32({cast, 0});
    for (const Operand& use : uses_of(cast->output())) {
      if (fp32_uses_.count(use)) continue;
      const Reach reach = reach_of(use, *this);
      const bool upcast = reach.reduction || reach.meets_fp32 || (knows_upcasts_ && reach.is_round_trip());
      if (!reach.softmax && !reach.joins_fp32 && (casts_back || !upcast)) continue;
      fp32_uses_.insert(use);
      changed_ = true;
    }
  }

  // A cast that only outputs see is one on purpose (`logits.float()`).
  void keep_casts_of_outputs() {
    for (Node* node : origins_.nodes()) {
      if (!is_decided_cast(node)) continue;
      const auto uses = uses_of(node->output());
      const bool only_outputs = std::all_of(uses.begin(), uses.end(), [&](const Operand& use) {
        const Reach reach = reach_of(use, *this);
        return reach.output && !reach.gemm && !reach.cast && !reach.upcast && !reach.met_half;
      });
      if (only_outputs) fp32_uses_.insert(uses.begin(), uses.end());
    }
  }

  // Whether the results may be fp32; notes the operands that are to be cast before.
  bool type_of_result(Node* node) {
    if (node->kind() == c10::prim::Constant) return is_fp32_constant(node->output());
    if (node->kind() == c10::prim::GetAttr) {
      const auto& names = origins_.buffer_names(node->output());
      return !names.empty() && plan_.fp32_buffers.count(names.front()) > 0;
    }
    if (!node->blocks().empty()) return type_of_blocks(node);
    if (node->inputs().empty()) return false;
    switch (type_role(node)) {
      case TypeRole::kCast:
        return is_cast_to_fp32(node) && !is_decided_cast(node) && !plan_.follow.count(node);
      case TypeRole::kTypeOf:
        return node->inputs().size() > 1 && operands_of(node).size() > 1 && is_fp32(operands_of(node)[1]);
      case TypeRole::kFactory:
        return type_argument(node)->value == at::kFloat && !origins_.depends_on_parameter(node->output()) &&
               !plan_.follow.count(node);
      case TypeRole::kNoFloat:
        return false;
      case TypeRole::kTable:
      case TypeRole::kBatchNorm:
        return is_fp32({node, 0});
      case TypeRole::kGemm:
      case TypeRole::kNorm:
        return type_of_gemm(node);
      default:
        return type_of_promotion(node);
    }
  }

  bool type_of_blocks(const Node* node) const {
    for (const auto* block : node->blocks()) {
      for (size_t i = 0; i < block->outputs().size(); ++i) {
        if (is_fp32({const_cast<Node*>(block->return_node()), i})) return true;
      }
    }
    return false;
  }

  std::vector<Operand> floats_of(Node* node) const {
    std::vector<Operand> out;
    for (const auto& operand : operands_of(node)) {
      const Value* value = entry_of(operand).value();
      if (!origins_.is_integer(value) && !is_number(value)) out.push_back(operand);
    }
    return out;
  }

  bool type_of_gemm(Node* node) {
    const auto floats = floats_of(node);
    const auto all = [&](auto test) { return std::all_of(floats.begin(), floats.end(), test); };
    if (all([&](const Operand& operand) { return is_fp32(operand) || !depends(operand); })) {
      const bool is_island = all([&](const Operand& operand) { return !depends(operand); });
      if (is_island && all([&](const Operand& operand) { return is_fp32(operand); })) return true;
      if (!is_island && is_on_purpose(node, *this)) return true;
    }
    for (const auto& operand : floats) {
      if (is_fp32(operand)) plan_.narrow.insert(operand);
    }
    return false;
  }

  bool type_of_promotion(Node* node) {
    if (const auto type = type_argument(node); type && type->value) return type->value == at::kFloat;
    const auto floats = floats_of(node);
    if (node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::TupleConstruct) return any_fp32(floats);
    std::vector<Operand> dependent, island;
    for (const auto& operand : floats) (depends(operand) ? dependent : island).push_back(operand);
    if (operators::works_in_place(node->kind()) || operators::traits(node->kind()).wants_one_type)
      return type_of_first(node, floats);
    if (dependent.empty()) return any_fp32(island) || makes_floats(node);
    if (narrows_to_weight(node, dependent)) return false;
    bool promotes = any_fp32(dependent);
    for (const auto& operand : island) promotes |= match(operand, dependent, node);
    return promotes;
  }

  bool any_fp32(const std::vector<Operand>& operands) const {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) { return is_fp32(operand); });
  }

  static bool makes_floats(const Node* node) {
    const auto role = type_role(node);
    const bool computes = role == TypeRole::kArithmetic || role == TypeRole::kReduction || role == TypeRole::kSoftmax;
    return computes && node->kind().is_aten() && !may_stay_integer(node);
  }

  bool type_of_first(Node* node, const std::vector<Operand>& floats) {
    const Operand first{node, 0};
    if (operators::traits(node->kind()).wants_one_type) {
      for (const auto& operand : floats) {
        if (!(operand == first) && is_fp32(operand) != is_fp32(first)) plan_.match.insert({operand, first});
      }
    }
    return is_fp32(first);
  }

  // An fp32 value without a parameter's influence takes the type of what it is combined with. An fp32 operand of
  // those decides: both are promoted. Returns whether it stays fp32, since a cast back of the result was recorded.
  bool match(const Operand& operand, const std::vector<Operand>& dependent, const Node* node) {
    if (type_role(node) == TypeRole::kSoftmax ? !is_loss_weight(operand) : !is_fp32(operand)) return false;
    if (type_role(node) == TypeRole::kArithmetic && reach_of(operand, *this).is_cast_back()) return true;
    const auto decides =
        std::find_if(dependent.begin(), dependent.end(), [&](const Operand& other) { return is_fp32(other); });
    const Operand& like = decides == dependent.end() ? dependent.front() : *decides;
    if (is_fp32(operand) == is_fp32(like)) return false;
    if (like.user == operand.user) {
      plan_.match.insert({operand, like});
    } else {  // one is in a list
      plan_.narrow.insert(operand);
    }
    return false;
  }

  static bool is_loss_weight(const Operand& operand) {
    const auto is = [&](const char* name) { return input_named(operand.user, name) == operand.input; };
    return is("weight") || is("pos_weight") || (operator_name(operand.user) == "binary_cross_entropy" && is("target"));
  }

  // The end of a norm whose Python code casts to the type of its weight, which a trace in fp32 does not contain
  // (`if self.weight.dtype in [float16, bfloat16]`, T5): `weight * x` of an fp32 x, on the way to a GEMM.
  bool narrows_to_weight(Node* node, const std::vector<Operand>& dependent) {
    if (type_role(node) != TypeRole::kArithmetic || dependent.size() != 2) return false;
    const bool second = origins_.is_parameter(dependent[1].value());
    if (!second && !origins_.is_parameter(dependent[0].value())) return false;
    const Operand& value = dependent[second ? 0 : 1];
    if (!is_fp32(value)) return false;
    const Reach reach = reach_of(value, *this);
    if (!reach.gemm || reach.softmax || reach.reduction) return false;
    plan_.narrow.insert(value);
    return true;
  }

  void record_cast(Node* node) {
    if (!is_decided_cast(node)) return;
    const auto uses = uses_of(node->output());
    const auto kept = std::count_if(uses.begin(), uses.end(), [&](const auto& use) { return fp32_uses_.count(use); });
    if (kept == 0) {
      plan_.follow.insert(node);
      return;
    }
    for (const auto& use : uses) {
      if (!fp32_uses_.count(use)) plan_.before_cast.insert(use);
    }
  }

  // A cast or a new tensor that reaches parameters' values unchanged, and only half-precision ones.
  void decide_island(Node* node) {
    const auto role = type_role(node);
    const bool casts = is_cast_to_fp32(node) && !is_decided_cast(node);
    const bool fills = role == TypeRole::kFactory && type_argument(node)->value == at::kFloat;
    if (!casts && !fills) return;
    const Border border = border_of(node->output(), *this);
    if (border.half && !border.fp32 && !border.arithmetic) plan_.follow.insert(node);
  }

  // A buffer from which others are computed before they reach a parameter's values keeps fp32.
  void decide_buffers() {
    std::set<std::string> direct;
    for (Node* node : origins_.nodes()) {
      if (node->kind() != c10::prim::GetAttr) continue;
      const auto& names = origins_.buffer_names(node->output());
      if (names.empty()) continue;
      const Border border = border_of(node->output(), *this);
      if (border.arithmetic && !border.written) plan_.fp32_buffers.insert(names.begin(), names.end());
      if (border.written) direct.insert(names.begin(), names.end());
    }
    for (const auto& name : direct) plan_.fp32_buffers.erase(name);
  }

  const ValueOrigins origins_;
  std::unordered_set<const Value*> fp32_;
  std::set<Operand> fp32_uses_;  // of casts
  bool changed_ = false;
  bool knows_upcasts_ = false;  // those that operators show, before those that only a later cast back shows
  DtypePlan plan_;
};

}  // namespace

DtypePlan plan_dtypes(torch::jit::Graph& graph, const torch::jit::Module& model) {
  return Planner(graph, model).plan();
}

}  // namespace dslaunch::runtime::model::dtypes
