#include "runtime/model/analysis/mutation_analysis.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "runtime/model/analysis/inlined_graph.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// Where a value's bytes may come from: an argument (no object), or an attribute of an object. `is_content`: the value
// is a container created during forward that holds those bytes, so that changing the container does not change them.
struct Origin {
  ObjectKey object;
  size_t slot;
  bool is_content = false;
  bool operator<(const Origin& other) const {
    return std::tie(object, slot, is_content) < std::tie(other.object, other.slot, other.is_content);
  }
};
using Origins = std::set<Origin>;

// Marks the origins as contents of a container that was created during forward.
Origins put_into_container(const Origins& origins) {
  Origins out;
  for (const auto& origin : origins) out.insert({origin.object, origin.slot, true});
  return out;
}

// Marks the origins as direct again.
Origins element_of(const Origins& origins) {
  Origins out;
  for (const auto& origin : origins) out.insert({origin.object, origin.slot, false});
  return out;
}

bool holds_tensors(const c10::TypePtr& type) {
  if (type->isSubtypeOf(*c10::TensorType::get()) || type->kind() == c10::TypeKind::AnyType) return true;
  const auto contained = type->containedTypes();
  return std::any_of(contained.begin(), contained.end(), holds_tensors);
}

bool is_container(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType || type->kind() == c10::TypeKind::DictType;
}

bool escapes_graph(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction || kind == "prim::fork" ||
         kind == "prim::awaitable" || kind == "prim::rpc_async" || node->hasAttribute(c10::attr::Subgraph);
}

class EffectScan {
 public:
  explicit EffectScan(const torch::jit::Module& module) : graph_(inlined_forward(module)) {
    objects_[graph_->inputs()[0]] = module._ivalue();
    for (size_t i = 1; i < graph_->inputs().size(); ++i) origins_[graph_->inputs()[i]].insert({nullptr, i, false});
  }

  ForwardEffects run() {
    visit_block(graph_->block());
    return std::move(effects_);
  }

 private:
  void visit_block(const Block* block) {
    for (const Node* node : block->nodes()) visit_node(node);
  }

  void visit_node(const Node* node) {
    if (node->kind() == c10::prim::GetAttr) {
      read_attribute(node);
    } else if (node->kind() == c10::prim::SetAttr) {
      write_attribute(node);
    } else if (node->kind() == c10::prim::If) {
      visit_branches(node);
    } else if (node->kind() == c10::prim::Loop) {
      visit_loop(node);
    } else {
      if (escapes_graph(node)) effects_.is_analyzable = false;
      const std::string_view kind = node->kind().toQualString();
      if (kind == "aten::grad" || kind == "aten::backward") effects_.calls_autograd = true;
      for (const Block* inner : node->blocks()) visit_block(inner);
      visit_operator(node);
    }
  }

  void read_attribute(const Node* node) {
    bind_attribute(node, objects_);
    auto owner = objects_.find(node->input(0));
    if (owner == objects_.end()) {  // an attribute of an object created during forward
      add(node->output(), origins_[node->input(0)]);
      if (node->input(0)->type()->is_module()) effects_.is_analyzable = false;
      return;
    }
    const size_t slot = owner->second->type()->getAttributeSlot(node->s(c10::attr::name));
    origins_[node->output()].insert({owner->second.get(), slot, false});
  }

  void write_attribute(const Node* node) {
    auto owner = objects_.find(node->input(0));
    if (owner == objects_.end()) return add(node->input(0), origins_[node->input(1)]);
    effects_.written.insert({owner->second.get(), owner->second->type()->getAttributeSlot(node->s(c10::attr::name))});
  }

  void visit_branches(const Node* node) {
    for (const Block* branch : node->blocks()) {
      visit_block(branch);
      for (size_t i = 0; i < node->outputs().size(); ++i) add(node->output(i), origins_[branch->outputs()[i]]);
    }
  }

  // Carried values: node inputs 2.., block inputs 1.., block outputs 1.., node outputs 0..
  void visit_loop(const Node* node) {
    const Block* body = node->blocks()[0];
    for (size_t i = 0; i < node->outputs().size(); ++i) add(body->inputs()[i + 1], origins_[node->input(i + 2)]);
    size_t before = 0;
    do {
      before = total_;
      visit_block(body);
      for (size_t i = 0; i < node->outputs().size(); ++i) add(body->inputs()[i + 1], origins_[body->outputs()[i + 1]]);
    } while (before != total_);  // until a fixed point is reached
    for (size_t i = 0; i < node->outputs().size(); ++i) add(node->output(i), origins_[body->inputs()[i + 1]]);
  }

  void visit_operator(const Node* node) {
    const auto* schema = node->maybeSchema();
    Origins all;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const auto& origins = origins_[node->input(i)];
      all.insert(origins.begin(), origins.end());
      if (schema && i < schema->arguments().size() && writes(schema->arguments()[i]))
        note_write(node->input(i), writes_elements(schema->arguments()[i]));
    }
    if (all.empty()) return;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (holds_tensors(node->output(i)->type())) add(node->output(i), origins_of_output(node, schema, i, all));
    }
    // A value put into a list is part of the list from then on.
    const bool fills = schema && !schema->arguments().empty() && writes(schema->arguments()[0]) &&
                       is_container(node->input(0)->type());
    if (fills) add(node->input(0), put_into_container(all));
  }

  // Batch norm's schema does not declare that it updates its running statistics.
  static bool writes(const c10::Argument& argument) {
    return (argument.alias_info() && argument.alias_info()->isWrite()) || argument.name().rfind("running_", 0) == 0;
  }

  // `list.append(t)` changes the list, `_foreach_add_(list, 1)` changes its elements.
  static bool writes_elements(const c10::Argument& argument) {
    const auto* info = argument.alias_info();
    if (!info) return true;
    const auto& inner = info->containedTypes();
    return std::any_of(inner.begin(), inner.end(), [](const auto& type) { return type.isWrite(); });
  }

  void note_write(const Value* value, bool elements) {
    const bool is_content_safe = is_container(value->type()) && !elements;
    for (const auto& [object, slot, is_content] : origins_[value]) {
      if (is_content && is_content_safe) continue;
      if (object) {
        effects_.written.insert({object, slot});
      } else {
        (is_container(value->type()) ? effects_.changes_containers : effects_.changes_tensors) = true;
      }
    }
  }

  // A tensor that an operator newly allocates has no origin; a view has the origin of its base, and so has a list of
  // views; a value that may hold tensors, or an operator without a schema, gets all origins.
  Origins origins_of_output(const Node* node, const c10::FunctionSchema* schema, size_t output, const Origins& all) {
    if (node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::DictConstruct)
      return put_into_container(all);
    if (!schema || schema->returns().size() != node->outputs().size()) return element_of(all);
    const auto* info = schema->returns()[output].alias_info();
    if (!info) return is_container(node->output(output)->type()) ? put_into_container(all) : Origins();
    if (is_any(*info)) return element_of(all);
    if (std::any_of(info->containedTypes().begin(), info->containedTypes().end(), is_any))
      return put_into_container(all);
    Origins out;
    for (size_t i = 0; i < node->inputs().size() && i < schema->arguments().size(); ++i) {
      const auto* given = schema->arguments()[i].alias_info();
      if (!given) continue;
      const auto& origins = origins_[node->input(i)];
      if (may_alias_set(*given, *info)) out.insert(origins.begin(), origins.end());
      for (const auto& inner : info->containedTypes()) {
        if (!may_alias_set(*given, inner)) continue;
        const auto contents = put_into_container(origins);
        out.insert(contents.begin(), contents.end());
      }
    }
    return out;
  }

  static bool is_any(const c10::AliasInfo& info) { return info.isWildcardBefore() || info.isWildcardAfter(); }
  static bool may_alias_set(const c10::AliasInfo& given, const c10::AliasInfo& returned) {
    return std::any_of(given.beforeSets().begin(), given.beforeSets().end(),
                       [&](const auto& set) { return returned.beforeSets().count(set) > 0; });
  }

  void add(const Value* value, const Origins& more) {
    auto& origins = origins_[value];
    const size_t before = origins.size();
    const Origins copy = more;  // may be the same set
    origins.insert(copy.begin(), copy.end());
    total_ += origins.size() - before;
  }

  std::shared_ptr<torch::jit::Graph> graph_;
  ObjectOfValue objects_;
  std::map<const Value*, Origins> origins_;
  size_t total_ = 0;  // of all sets: grows until a loop has converged
  ForwardEffects effects_;
};

}  // namespace

ForwardEffects scan_forward_effects(const torch::jit::Module& module) {
  return EffectScan(module).run();
}

}  // namespace dslaunch::runtime::model::analysis
