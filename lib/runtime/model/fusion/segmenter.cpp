#include "runtime/model/fusion/segmenter.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/model/fusion/fused_operator.hpp"
#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/lowering.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_glue(const Node* node) {
  return node->kind() == c10::prim::ListConstruct;
}

// A number that follows from sizes and dtypes: of a tensor in the region, it would separate the region from itself.
bool is_metadata(const Node* node) {
  if (node->outputs().size() != 1 || node->output()->type()->kind() != c10::TypeKind::IntType) return false;
  const auto& traits = operators::traits(node->kind());
  if (traits.reads == operators::Reads::kShape || traits.reads == operators::Reads::kDtype) {
    return node->input(0)->type()->isSubtypeOf(*c10::TensorType::get());
  }
  return traits.on_integers == node->kind().toQualString() &&
         std::all_of(node->inputs().begin(), node->inputs().end(),
                     [](const Value* input) { return input->type()->kind() == c10::TypeKind::IntType; });
}

// A node across which nothing moves: branches, calls, writes, effects.
bool is_barrier(const Node* node) {
  static const auto kKeepConstants = c10::Symbol::fromQualString("dslaunch::keep_constants");  // repeatable, no effects
  if (!node->blocks().empty()) return true;
  if (node->kind() == kKeepConstants) return false;
  if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::GetAttr || is_glue(node) ||
      node->kind() == c10::prim::TupleConstruct || node->kind() == c10::prim::TupleUnpack ||
      node->kind() == c10::prim::ListUnpack) {
    return false;
  }
  const auto* schema = node->maybeSchema();
  return schema == nullptr || schema->is_vararg() || schema->is_mutable() || node->hasSideEffects();
}

class BlockFusion {
 public:
  BlockFusion(Block* block, const graph::Aliases& aliases, FusionServicesPtr services = {})
      : block_(block), aliases_(aliases), services_(std::move(services)) {}

  int run() {
    int count = 0;
    std::vector<Node*> segment;
    std::vector<Node*> all(block_->nodes().begin(), block_->nodes().end());
    for (Node* node : all) {
      if (!is_barrier(node)) {
        segment.push_back(node);
        continue;
      }
      count += fuse(segment, node);
      segment.clear();
      for (Block* inner : node->blocks()) count += BlockFusion(inner, aliases_, services_).run();
    }
    return count + fuse(segment, block_->return_node());
  }

  void add_left(std::unordered_map<const Node*, std::string_view>& to) {
    for (Node* node : block_->nodes()) {
      for (Block* inner : node->blocks()) BlockFusion(inner, aliases_).add_left(to);
      if (!is_fusible(node)) continue;
      to[node] = is_candidate(node) ? "stands alone between others" : "its memory is written to in place";
    }
  }

 private:
  // In the place of a list, what is in it.
  static std::vector<Value*> real_inputs(Node* node) {
    std::vector<Value*> out;
    for (Value* input : node->inputs()) {
      if (is_glue(input->node())) {
        out.insert(out.end(), input->node()->inputs().begin(), input->node()->inputs().end());
      } else {
        out.push_back(input);
      }
    }
    return out;
  }

  bool is_candidate(Node* node) {
    if (!is_fusible(node) || aliases_.is_written(node->output())) return false;
    for (Value* input : real_inputs(node)) {
      if (aliases_.is_written(input)) return false;
    }
    return true;
  }

  // `end`: the node after the segment.
  int fuse(const std::vector<Node*>& segment, Node* end) {
    std::unordered_map<const Value*, size_t> maker;
    std::vector<PartitionItem> items;
    std::vector<Node*> nodes;
    for (Node* node : segment) {
      if (is_glue(node)) continue;
      PartitionItem item;
      for (const Value* input : real_inputs(node)) {
        if (const auto found = maker.find(input); found != maker.end()) item.inputs.push_back(found->second);
      }
      if (is_metadata(node) || is_candidate(node)) item.kind = 0;
      for (const Value* output : node->outputs()) maker[output] = nodes.size();
      nodes.push_back(node);
      items.push_back(std::move(item));
    }
    const auto group = partition(items);
    std::map<size_t, std::vector<size_t>> members;
    for (size_t i = 0; i < nodes.size(); ++i) members[group[i]].push_back(i);
    const auto is_region = [&](const auto& group_and_members) {
      const auto& of_group = group_and_members.second;
      return std::count_if(of_group.begin(), of_group.end(), [&](size_t i) { return !is_metadata(nodes[i]); }) > 1;
    };
    if (std::none_of(members.begin(), members.end(), is_region)) return 0;
    reorder(segment, nodes, items, group, members, end);
    int count = 0;
    for (const auto& one : members) {
      if (!is_region(one)) continue;
      std::vector<Node*> inside;
      for (const size_t i : one.second) inside.push_back(nodes[i]);
      count += extract_subgraph(inside) ? 1 : 0;
    }
    return count;
  }

  // Moves the nodes so that each group lies together; groups keep the order of their last nodes as far as they can.
  static void reorder(const std::vector<Node*>& segment, const std::vector<Node*>& nodes,
                      const std::vector<PartitionItem>& items, const std::vector<size_t>& group,
                      const std::map<size_t, std::vector<size_t>>& members, Node* end) {
    std::unordered_set<Node*> glue;  // not yet moved
    for (Node* node : segment) {
      if (is_glue(node)) glue.insert(node);
    }
    const std::function<void(Node*)> move_glue = [&](Node* node) {
      if (glue.erase(node) == 0) return;
      for (Value* input : node->inputs()) move_glue(input->node());
      node->moveBefore(end);
    };
    std::map<size_t, std::set<size_t>> needs, users;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const size_t input : items[i].inputs) {
        if (group[input] == group[i]) continue;
        needs[group[i]].insert(group[input]);
        users[group[input]].insert(group[i]);
      }
    }
    using Entry = std::pair<size_t, size_t>;  // last node, group
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    std::map<size_t, size_t> waiting;
    for (const auto& [number, of_group] : members) {
      waiting[number] = needs[number].size();
      if (waiting[number] == 0) ready.emplace(of_group.back(), number);
    }
    while (!ready.empty()) {
      const size_t number = ready.top().second;
      ready.pop();
      for (const size_t i : members.at(number)) {
        for (Value* input : nodes[i]->inputs()) move_glue(input->node());
        nodes[i]->moveBefore(end);
      }
      for (const size_t user : users[number]) {
        if (--waiting[user] == 0) ready.emplace(members.at(user).back(), user);
      }
    }
    for (Node* node : segment) move_glue(node);  // read later on
  }

  // Replaces nodes that lie together.
  bool extract_subgraph(const std::vector<Node*>& inside) {
    const std::unordered_set<const Node*> members(inside.begin(), inside.end());
    auto subgraph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> copies;
    std::vector<Value*> inputs;
    const std::function<Value*(Value*)> copy_of = [&](Value* value) -> Value* {
      if (const auto found = copies.find(value); found != copies.end()) return found->second;
      Node* made = value->node();
      if (made->kind() == c10::prim::Constant) {
        Node* constant = subgraph->createClone(made, copy_of);
        subgraph->prependNode(constant);
        return copies[value] = constant->output();
      }
      if (is_glue(made)) {
        Node* list = subgraph->createClone(made, copy_of);
        subgraph->appendNode(list);
        return copies[value] = list->output();
      }
      Value* input = subgraph->addInput();
      input->setType(value->type());
      inputs.push_back(value);
      return copies[value] = input;
    };
    for (Node* node : inside) {
      Node* clone = subgraph->createClone(node, copy_of);
      subgraph->appendNode(clone);
      for (size_t i = 0; i < node->outputs().size(); ++i) copies[node->output(i)] = clone->output(i);
    }
    std::vector<Value*> outputs;
    for (Node* node : inside) {
      if (is_needed_outside(node->output(), members)) outputs.push_back(node->output());
    }
    if (outputs.empty()) return false;
    for (Value* output : outputs) subgraph->registerOutput(copies.at(output));
    Node* fused = create_fused_region(*block_->owningGraph(), inputs, subgraph, services_);
    fused->setSourceRange(inside.front()->sourceRange());
    fused->insertAfter(inside.back());
    for (size_t i = 0; i < outputs.size(); ++i) {
      fused->output(i)->copyMetadata(outputs[i]);
      outputs[i]->replaceAllUsesWith(fused->output(i));
    }
    for (auto it = inside.rbegin(); it != inside.rend(); ++it) {
      std::set<Node*> lists;
      for (Value* input : (*it)->inputs()) {
        if (is_glue(input->node())) lists.insert(input->node());
      }
      (*it)->destroy();
      for (Node* list : lists) {
        const auto reads_results = [&](const Value* input) { return input->node() == fused; };
        if (!list->hasUses()) {
          list->destroy();
        } else if (std::any_of(list->inputs().begin(), list->inputs().end(), reads_results)) {
          list->moveAfter(fused);  // others read it as well
        }
      }
    }
    return true;
  }

  static bool is_needed_outside(const Value* value, const std::unordered_set<const Node*>& inside) {
    return std::any_of(value->uses().begin(), value->uses().end(), [&](const auto& use) {
      if (is_glue(use.user)) return is_needed_outside(use.user->output(), inside);
      return inside.count(use.user) == 0;
    });
  }

  Block* block_;
  const graph::Aliases& aliases_;
  const FusionServicesPtr services_;  // of the regions that are made
};

class Partition {
 public:
  explicit Partition(const std::vector<PartitionItem>& items)
      : items_(items), users_(items.size()), group_(items.size()), members_(items.size()) {
    std::iota(group_.begin(), group_.end(), size_t{0});
    for (size_t i = 0; i < items.size(); ++i) members_[i] = {i};
  }

  std::vector<size_t> run() {
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const size_t input : items_[i].inputs) users_[input].push_back(i);
      if (!items_[i].kind) continue;
      auto inputs = items_[i].inputs;
      std::sort(inputs.rbegin(), inputs.rend());  // the latest first
      for (const size_t input : inputs) {
        if (items_[input].kind == items_[i].kind && group_[input] != group_[i] && can_join(group_[input], group_[i])) {
          join(group_[input], group_[i]);
        }
      }
    }
    return group_;
  }

 private:
  // Whether what depends on the two groups together, and is in neither, stays apart from what they depend on.
  bool can_join(size_t a, size_t b) const {
    std::vector<bool> seen(items_.size());
    std::vector<size_t> open;  // groups
    const auto visit_users = [&](size_t group, bool is_start) {
      for (const size_t member : members_[group]) {
        for (const size_t user : users_[member]) {
          const size_t next = group_[user];
          if (is_start && (next == a || next == b)) continue;
          if (seen[next]) continue;
          seen[next] = true;
          open.push_back(next);
        }
      }
    };
    visit_users(a, true);
    visit_users(b, true);
    while (!open.empty()) {
      const size_t group = open.back();
      open.pop_back();
      if (group == a || group == b) return false;
      visit_users(group, false);
    }
    return true;
  }

  void join(size_t a, size_t b) {
    const size_t to = std::min(a, b), from = std::max(a, b);
    for (const size_t member : members_[from]) {
      group_[member] = to;
      members_[to].push_back(member);
    }
    members_[from].clear();
  }

  const std::vector<PartitionItem>& items_;
  std::vector<std::vector<size_t>> users_;    // among the items so far
  std::vector<size_t> group_;                 // by item; a group has the number of its first member
  std::vector<std::vector<size_t>> members_;  // by group
};

}  // namespace

int fuse_regions(Block* block, const FusionServicesPtr& services) {
  slice_pieces(block);
  separate_bias_gradients(block);
  const graph::Aliases aliases(block);
  const int count = BlockFusion(block, aliases, services).run();
  restore_bias_gradients(block);
  return count;
}

std::unordered_map<const Node*, std::string_view> operators_left(Block* block) {
  std::unordered_map<const Node*, std::string_view> out;
  const graph::Aliases aliases(block);
  BlockFusion(block, aliases).add_left(out);
  return out;
}

int fuse_regions(const torch::jit::Module& model, const FusionServicesPtr& services) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) count += fuse_regions(graph->block(), services);
  return count;
}

std::vector<size_t> partition(const std::vector<PartitionItem>& items) {
  return Partition(items).run();
}

}  // namespace dslaunch::runtime::model::fusion
