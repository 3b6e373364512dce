
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/model/constants/constant_region.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::constants {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// A class, not a capsule: LibTorch cannot print nodes with capsules.
const torch::class_<ConstantRegion> kRegionClass("dslaunch", "ConstantRegion");

const auto kKeep = c10::Symbol::fromQualString("dslaunch::keep_constants");
const auto kRegion = c10::Symbol::attr("region");  // of such a node

torch::jit::Operation keep_operation(const Node* node) {
  const auto region = node->ival(kRegion).toCustomClass<ConstantRegion>();
  return [region](torch::jit::Stack& stack) { region->run(stack); };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::keep_constants(...) -> ...",
                                                                        keep_operation,
                                                                        c10::AliasAnalysisKind::CONSERVATIVE)});

// An attribute by the class that has it.
using AttributeKey = std::pair<const c10::ClassType*, std::string>;
using AttributeKeys = std::set<AttributeKey>;

std::optional<AttributeKey> attribute_of(const Node* node) {
  if (node->kind() != c10::prim::GetAttr && node->kind() != c10::prim::SetAttr) return std::nullopt;
  const auto owner = node->input(0)->type()->cast<c10::ClassType>();
  if (!owner) return std::nullopt;
  return AttributeKey{owner.get(), node->s(c10::attr::name)};
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// A number, or what else has no elements that a device computes.
bool is_host_value(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
      return true;
    case c10::TypeKind::ListType:
      return type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::IntType;
    default:
      return false;
  }
}

// What a region may return: a list could be changed by its users.
bool may_leave(const Value* value) {
  return is_tensor(value) || (is_host_value(value->type()) && value->type()->kind() != c10::TypeKind::ListType);
}

bool writes_to(const torch::jit::Use& use) {
  const auto* schema = use.user->maybeSchema();
  if (schema == nullptr || use.offset >= schema->arguments().size()) return false;
  const auto* info = schema->arguments()[use.offset].alias_info();
  return info != nullptr && info->isWrite();
}

bool has_parameters(const c10::ClassType& type) {
  for (size_t i = 0; i < type.numAttributes(); ++i) {
    if (type.is_parameter(i)) return true;
    const auto attribute = type.getAttribute(i)->cast<c10::ClassType>();
    if (attribute && attribute->is_module() && has_parameters(*attribute)) return true;
  }
  return false;
}

// Attributes that something else than these operators gets: they may be written to.
AttributeKeys find_unsafe_attributes(const torch::jit::Module& model) {
  AttributeKeys out;
  graph::for_every_node(model, [&](Node* node) {
    const auto key = attribute_of(node);
    if (!key) return;
    if (node->kind() == c10::prim::SetAttr) {
      out.insert(*key);
      return;
    }
    if (!is_tensor(node->output())) return;
    const auto& uses = node->output()->uses();
    const bool is_safe = std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
      return is_repeatable(use.user) && use.user->kind() != c10::prim::ListConstruct;
    });
    if (!is_safe) out.insert(*key);
  });
  return out;
}

// The constants of one block.
class BlockConstants {
 public:
  BlockConstants(Block* block, const AttributeKeys& unsafe_attributes, RegionContext context)
      : block_(block), unsafe_attributes_(unsafe_attributes), context_(std::move(context)) {}

  // Returns the number of regions.
  int make_regions() {
    classify();
    while (drop_unsuitable()) {
    }
    remove_unused();
    std::vector<Node*> open;
    for (Node* node : nodes_) {
      if (constant_.count(node)) {
        open.push_back(node);
      } else if (!open.empty() && (ends_region(node, open) || uses_any(node, open))) {
        close(open, node);
      }
    }
    close(open, block_->return_node());
    return num_regions_;
  }

 private:
  void classify() {
    for (Node* node = *block_->nodes().begin(); node != block_->return_node();) {
      if (node->kind() == c10::prim::CallMethod && can_inline(node)) {
        Node* const before = node->prev();
        auto* callee = node->input(0)->type()->expectRef<c10::ClassType>().findMethod(node->s(c10::attr::name));
        auto& function = torch::jit::toGraphFunction(*callee);
        torch::jit::inlineCallTo(node, &function, function.graph().get());
        node = before->next();
        continue;
      }
      visit(node);
      nodes_.push_back(node);
      node = node->next();
    }
  }

  void visit(Node* node) {
    if (node->kind() == c10::prim::GetAttr) {
      if (is_buffer(node)) known_.insert(node->output());
    } else if (node->kind() == c10::prim::Constant) {
      if (is_tensor(node->output())) known_.insert(node->output());
    } else if (node->kind() == c10::prim::TupleConstruct) {
      if (all_known(node)) known_.insert(node->output());
    } else if (node->kind() == c10::prim::TupleUnpack) {
      if (known_.count(node->input(0))) add_known(node);
    } else if (is_candidate(node)) {
      constant_.insert(node);
      add_known(node);
    }
  }

  void add_known(const Node* node) { known_.insert(node->outputs().begin(), node->outputs().end()); }

  bool is_buffer(const Node* node) const {
    const auto key = attribute_of(node);
    if (!key || !is_tensor(node->output()) || unsafe_attributes_.count(*key)) return false;
    return !graph::is_parameter(*key->first, key->first->getAttributeSlot(key->second));
  }

  bool is_known(const Value* value) const { return known_.count(value) > 0 || is_host_value(value->type()); }
  bool all_known(const Node* node) const {
    return std::all_of(node->inputs().begin(), node->inputs().end(), [&](const Value* in) { return is_known(in); });
  }

  bool is_candidate(const Node* node) const {
    if (!is_repeatable(node) || !all_known(node)) return false;
    const auto has_tensor = [&](const Value* value) { return !is_host_value(value->type()); };
    return std::any_of(node->inputs().begin(), node->inputs().end(), has_tensor) ||
           std::any_of(node->outputs().begin(), node->outputs().end(), has_tensor);
  }

  bool can_inline(const Node* call) const {
    const auto type = call->input(0)->type()->cast<c10::ClassType>();
    if (!type || !type->is_module() || has_parameters(*type)) return false;
    auto* callee = type->findMethod(call->s(c10::attr::name));
    if (callee == nullptr || !callee->isGraphFunction()) return false;
    callee->ensure_defined();
    const auto graph = torch::jit::toGraphFunction(*callee).graph();
    if (graph->inputs().size() != call->inputs().size() || call->inputs().size() < 2) return false;
    for (size_t i = 1; i < call->inputs().size(); ++i) {
      if (!is_known(call->input(i)) && graph->inputs()[i]->hasUses()) return false;
    }
    return std::all_of(graph->nodes().begin(), graph->nodes().end(), [](const Node* node) {
      const auto kind = node->kind();
      return is_repeatable(node) || kind == c10::prim::Constant || kind == c10::prim::GetAttr ||
             kind == c10::prim::TupleConstruct || kind == c10::prim::TupleUnpack;
    });
  }

  // Drops nodes whose results something else could change, and what follows from them. Returns whether there were any.
  bool drop_unsuitable() {
    bool has_changed = false;
    for (Node* node : nodes_) {
      const bool is_constant = constant_.count(node) > 0;
      const bool is_structure = is_known_structure(node);
      if (!is_constant && !is_structure) continue;
      if (all_known(node) && (is_structure || is_suitable(node))) continue;
      constant_.erase(node);
      for (const Value* output : node->outputs()) known_.erase(output);
      has_changed = true;
    }
    return has_changed;
  }

  bool is_known_structure(const Node* node) const {
    const bool is_tuple = node->kind() == c10::prim::TupleConstruct || node->kind() == c10::prim::TupleUnpack;
    return is_tuple && !node->outputs().empty() && known_.count(node->output(0)) > 0;
  }

  bool is_suitable(const Node* node) const {
    return std::all_of(node->outputs().begin(), node->outputs().end(), [&](const Value* output) {
      return std::all_of(output->uses().begin(), output->uses().end(), [&](const torch::jit::Use& use) {
        return constant_.count(use.user) > 0 || (may_leave(output) && !writes_to(use));
      });
    });
  }

  void remove_unused() {
    for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
      if (!constant_.count(*it) || (*it)->hasUses()) continue;
      constant_.erase(*it);
      (*it)->destroy();
      *it = nullptr;
    }
    nodes_.erase(std::remove(nodes_.begin(), nodes_.end(), nullptr), nodes_.end());
  }

  // Operators do not move across a change of state: of autocast, or of a buffer that they read.
  bool ends_region(const Node* node, const std::vector<Node*>& open) const {
    if (node->kind() == c10::prim::Enter || node->kind() == c10::prim::Exit) return true;
    const bool may_write = !node->blocks().empty() || node->hasSideEffects() || node->kind() == c10::prim::CallMethod ||
                           node->kind() == c10::prim::CallFunction;
    if (may_write && node->outputs().empty()) return true;
    const auto is_written = [&](const Value* input) {
      return std::any_of(input->uses().begin(), input->uses().end(),
                         [&](const torch::jit::Use& use) { return use.user == node && writes_to(use); });
    };
    if (!may_write && std::none_of(node->inputs().begin(), node->inputs().end(), is_written)) return false;
    return std::any_of(open.begin(), open.end(), [](const Node* member) {
      return std::any_of(member->inputs().begin(), member->inputs().end(),
                         [](const Value* input) { return input->node()->kind() == c10::prim::GetAttr; });
    });
  }

  bool uses_any(const Node* node, const std::vector<Node*>& open) const {
    return std::any_of(open.begin(), open.end(), [&](const Node* member) {
      return std::any_of(member->outputs().begin(), member->outputs().end(), [&](const Value* output) {
        return std::any_of(output->uses().begin(), output->uses().end(),
                           [&](const torch::jit::Use& use) { return in_this_block(use.user) == node; });
      });
    });
  }

  // The node of this block that is the node or has it in a branch.
  const Node* in_this_block(const Node* node) const {
    while (node != nullptr && node->owningBlock() != block_) node = node->owningBlock()->owningNode();
    return node;
  }

  void close(std::vector<Node*>& open, Node* before) {
    if (std::any_of(open.begin(), open.end(), [](const Node* node) { return !is_free(node); })) {
      make_region(open, before);
    }
    open.clear();
  }

  void make_region(const std::vector<Node*>& members, Node* before) {
    const std::unordered_set<const Node*> inside(members.begin(), members.end());
    auto graph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> copies;
    std::vector<Value*> arguments;
    const auto copy_of = [&](Value* value) {
      const auto known = copies.find(value);
      if (known != copies.end()) return known->second;
      Value* copy = nullptr;
      if (value->node()->kind() == c10::prim::Constant) {
        Node* constant = graph->createClone(value->node(), [](Value* input) { return input; });
        copy = graph->prependNode(constant)->output();
      } else {
        copy = graph->addInput()->copyMetadata(value);
        arguments.push_back(value);
      }
      return copies[value] = copy;
    };
    for (Node* member : members) {
      Node* copy = graph->insertNode(graph->createClone(member, copy_of));
      for (size_t i = 0; i < member->outputs().size(); ++i) copies[member->output(i)] = copy->output(i);
    }
    std::vector<Value*> results;
    for (Node* member : members) {
      for (Value* output : member->outputs()) {
        const auto& uses = output->uses();
        if (std::all_of(uses.begin(), uses.end(), [&](const auto& use) { return inside.count(use.user) > 0; }))
          continue;
        graph->registerOutput(copies.at(output));
        results.push_back(output);
      }
    }
    Node* region = block_->owningGraph()->create(kKeep, arguments, results.size());
    region->ival_(kRegion, c10::make_intrusive<ConstantRegion>(graph, context_));
    region->setSourceRange(members.front()->sourceRange());
    region->insertBefore(before);
    for (size_t i = 0; i < results.size(); ++i) {
      region->output(i)->copyMetadata(results[i]);
      results[i]->replaceAllUsesWith(region->output(i));
    }
    for (auto member = members.rbegin(); member != members.rend(); ++member) (*member)->destroy();
    num_regions_ += 1;
  }

  Block* const block_;
  const AttributeKeys& unsafe_attributes_;
  const RegionContext context_;
  std::vector<Node*> nodes_;                // of the block
  std::unordered_set<const Value*> known_;  // tensors, and tuples of them
  std::unordered_set<const Node*> constant_;
  int num_regions_ = 0;
};

}  // namespace

int keep_constants(const torch::jit::Module& model, const RegionContext& context) {
  const AttributeKeys unsafe = find_unsafe_attributes(model);
  std::vector<Block*> blocks;
  std::unordered_set<const Block*> seen;
  graph::for_every_node(model, [&](Node* node) {
    if (seen.insert(node->owningBlock()).second) blocks.push_back(node->owningBlock());
  });
  int num_regions = 0;
  for (Block* block : blocks) num_regions += BlockConstants(block, unsafe, context).make_regions();
  return num_regions;
}

}  // namespace dslaunch::runtime::model::constants
