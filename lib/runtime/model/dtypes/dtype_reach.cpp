
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "runtime/model/dtypes/dtype_values.hpp"

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool is_carrier(const Node* node) {
  return node->kind() == c10::prim::TupleConstruct || node->kind() == c10::prim::Return;
}

// The cast that a value was before its elements were moved; null: it was computed.
const Node* cast_behind(Operand operand, const TypesInRun& types) {
  while (true) {
    Node* node = entry_of(operand).value()->node();
    if (types.is_decided_cast(node)) return node;
    if (type_role(node) != TypeRole::kElements || node->kind() == c10::prim::TupleUnpack) return nullptr;
    const auto operands = operands_of(node);
    if (operands.empty()) return nullptr;
    operand = operands.front();
  }
}

class ReachFinder {
 public:
  explicit ReachFinder(const TypesInRun& types) : types_(types) {}

  Reach find(const Operand& use) {
    visit(use, Path::kElements);
    while (!pending_.empty()) {
      const auto [value, path] = pending_.back();
      pending_.pop_back();
      for (const auto& next : uses_of(value)) visit(next, path);
    }
    return found_;
  }

 private:
  // What has happened to the value so far.
  enum class Path { kElements, kComputed, kMetHalf };

  void visit(const Operand& use, Path path) {
    if (is_carrier(use.user)) return go_on(use, path);
    switch (type_role(use.user)) {
      case TypeRole::kNoFloat:
      case TypeRole::kFactory:
        return;
      case TypeRole::kCast:
        (types_.is_kept_cast(use.user) ? found_.upcast : found_.cast) = true;
        return;
      case TypeRole::kTypeOf:
        found_.cast |= use.input == 0;
        return;
      case TypeRole::kSoftmax:
        found_.softmax = true;
        return;
      case TypeRole::kReduction:
        if (path == Path::kMetHalf) return go_on(use, path);
        found_.reduction = true;
        return;
      case TypeRole::kNorm:
      case TypeRole::kGemm:
        return visit_gemm(use, path);
      case TypeRole::kTable:
      case TypeRole::kBatchNorm:
        found_.gemm = true;
        return;
      default:
        return go_on(use, meet(use, path));
    }
  }

  void visit_gemm(const Operand& use, Path path) {
    if (!is_on_purpose(use.user, types_)) {
      found_.gemm = true;
      return;
    }
    if (type_role(use.user) == TypeRole::kNorm) found_.reduction = true;
    found_.arithmetic = true;
    go_on(use, std::max(path, Path::kComputed));
  }

  Path meet(const Operand& use, Path path) {
    if (use.user->kind() == c10::prim::ListConstruct) return path;
    Path after = path;
    for (const auto& other : operands_of(use.user)) {
      if (other == use || !types_.depends(other)) continue;
      if (types_.is_fp32(other)) {
        meet_fp32(path);
      } else if (!comes_from_upcasts(other, 0)) {
        after = Path::kMetHalf;
      }
    }
    if (type_role(use.user) == TypeRole::kArithmetic) {
      found_.arithmetic = true;
      after = std::max(after, Path::kComputed);
    }
    found_.met_half |= after == Path::kMetHalf;
    return after;
  }

  void meet_fp32(Path path) {
    found_.joins_fp32 |= path == Path::kElements;
    found_.meets_fp32 |= path != Path::kMetHalf;
    found_.later_fp32 = true;
  }

  // Whether a value is computed only from upcasts and from values without parameters.
  bool comes_from_upcasts(const Operand& operand, int depth) const {
    constexpr int kMaxDepth = 32;
    if (!types_.depends(operand)) return true;
    Node* node = entry_of(operand).value()->node();
    if (types_.is_decided_cast(node)) return !types_.is_fp32({node, 0});
    const auto role = type_role(node);
    if (depth > kMaxDepth || (role != TypeRole::kElements && role != TypeRole::kArithmetic)) return false;
    const auto operands = operands_of(node);
    return !operands.empty() && std::all_of(operands.begin(), operands.end(),
                                            [&](const Operand& inner) { return comes_from_upcasts(inner, depth + 1); });
  }

  void go_on(const Operand& use, Path path) {
    for (Value* value : values_after(use, found_.output)) {
      if (seen_.insert({value, path}).second) pending_.push_back({value, path});
    }
  }

  const TypesInRun& types_;
  Reach found_;
  std::vector<std::pair<Value*, Path>> pending_;
  std::set<std::pair<const Value*, Path>> seen_;
};

class BorderFinder {
 public:
  explicit BorderFinder(const TypesInRun& types) : types_(types) {}

  Border find(Value* value) {
    pending_.push_back(value);
    while (!pending_.empty()) {
      Value* next = pending_.back();
      pending_.pop_back();
      for (const auto& use : uses_of(next)) visit(use);
    }
    return found_;
  }

 private:
  void visit(const Operand& use) {
    if (use.user->kind() == c10::prim::SetAttr) {
      found_.written = true;
      return;
    }
    if (is_carrier(use.user) || use.user->kind() == c10::prim::ListConstruct) return go_on(use);
    const auto role = type_role(use.user);
    if (role == TypeRole::kNoFloat && is_query(use.user)) return;
    found_.written |= operators::works_in_place(use.user->kind()) && use.input == 0;
    if (meets_parameters(use)) return;
    if (role == TypeRole::kElements || role == TypeRole::kCast) return go_on(use);
    if (role != TypeRole::kTypeOf || use.input == 0) found_.arithmetic = true;
  }

  static bool is_query(const Node* node) {
    return node->outputs().empty() || !node->output(0)->type()->isSubtypeOf(*c10::TensorType::get());
  }

  bool meets_parameters(const Operand& use) {
    bool met = false;
    for (const auto& other : operands_of(use.user)) {
      if (other == use || !types_.depends(other)) continue;
      met = true;
      (types_.is_fp32(other) ? found_.fp32 : found_.half) = true;
    }
    return met;
  }

  void go_on(const Operand& use) {
    for (Value* value : values_after(use, found_.arithmetic)) {
      if (seen_.insert(value).second) pending_.push_back(value);
    }
  }

  const TypesInRun& types_;
  Border found_;
  std::vector<Value*> pending_;
  std::set<const Value*> seen_;
};

}  // namespace

Reach reach_of(const Operand& use, const TypesInRun& types) {
  return ReachFinder(types).find(use);
}

bool is_on_purpose(Node* node, const TypesInRun& types) {
  bool any = false;
  for (const auto& operand : operands_of(node)) {
    if (!types.depends(operand)) continue;
    const Node* cast = cast_behind(operand, types);
    if (cast == nullptr || types.is_fp32({const_cast<Node*>(cast), 0})) return false;
    any = true;
  }
  return any;
}

Border border_of(Value* value, const TypesInRun& types) {
  return BorderFinder(types).find(value);
}

}  // namespace dslaunch::runtime::model::dtypes
