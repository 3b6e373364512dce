#include "runtime/model/analysis/index_bounds_analysis.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Traces values backwards through operators that preserve an index (or the class dim of logits).
class IndexUseScan {
 public:
  explicit IndexUseScan(const graph::FlatGraph& flat) : graph_(flat.graph), objects_(flat.objects) {}

  IndexUse run() {
    find_changed(graph_->block());
    visit(graph_->block());
    for (const auto& [name, output] : named_outputs()) {
      if (const auto classes = classes_of(output, 0)) use_.num_classes[name] = *classes;
    }
    return std::move(use_);
  }

 private:
  static constexpr int kMaxDepth = 64;  // of operators between a value and its origin

  // Values written to in place no longer hold the numbers they were made from: x = ids.clone(); x[x < 0] = 0.
  void find_changed(const Block* block) {
    graph::for_each_node(block, [&](const Node* node) {
      const auto* schema = node->maybeSchema();
      for (size_t i = 0; schema && i < schema->arguments().size() && i < node->inputs().size(); ++i) {
        const auto* alias = schema->arguments()[i].alias_info();
        if (alias && alias->isWrite()) mark_changed(node->input(i));
      }
    });
  }

  // Marks the value and the value that it is a view of.
  void mark_changed(const Value* value) {
    if (!changed_.insert(value).second) return;
    const Node* node = value->node();
    if (node->kind() == c10::prim::If) {
      for (const Block* branch : node->blocks()) mark_changed(branch->outputs()[value->offset()]);
    }
    const auto* schema = node->maybeSchema();
    if (!schema || schema->returns().empty() || !schema->returns()[0].alias_info() || becomes_float(node)) return;
    for (size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
      if (schema->arguments()[i].alias_info()) mark_changed(node->input(i));
    }
  }

  // ids.float() is a copy, although the schema allows a view.
  static bool becomes_float(const Node* node) {
    if (node->kind() != c10::aten::to || !node->hasNamedInput("dtype")) return false;
    const auto dtype = torch::jit::toIValue(node->namedInput("dtype"));
    return dtype && dtype->isInt() && at::isFloatingType(dtype->toScalarType());
  }

  // The entries of what forward returns, as ForwardResult names them.
  std::vector<std::pair<std::string, const Value*>> named_outputs() const {
    std::vector<std::pair<std::string, const Value*>> out;
    if (graph_->outputs().empty()) return out;
    const Value* value = graph_->outputs()[0];
    const Node* node = value->node();
    const auto inputs = node->inputs();
    if (node->kind() == c10::prim::DictConstruct) {
      for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
        const auto key = torch::jit::toIValue(inputs[i]);
        if (key && key->isString()) out.emplace_back(key->toStringRef(), inputs[i + 1]);
      }
    } else if (node->kind() == c10::prim::TupleConstruct) {
      const auto type = value->type()->cast<c10::TupleType>();
      const auto* fields = type && type->schema() ? &type->schema()->arguments() : nullptr;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const bool is_named = fields != nullptr && i < fields->size();
        out.emplace_back(is_named ? (*fields)[i].name() : std::to_string(i), inputs[i]);
      }
    } else {
      out.emplace_back("", value);
    }
    return out;
  }

  void visit(const Block* block) {
    for (const Node* node : block->nodes()) {
      if (const auto& index = operators::traits(node->kind()).index; index.input >= 0) add_index(node, index);
      // Does not run for every sample.
      if (node->kind() == c10::prim::If && depends_on_samples(node->input(0))) continue;
      for (const Block* inner : node->blocks()) visit(inner);
    }
  }

  void add_index(const Node* node, const operators::IndexOperand& index) {
    const Value* given = node->input(static_cast<size_t>(index.input));
    const bool is_label = index.bound == operators::IndexBound::kClasses;
    if (is_label) {
      const auto classes = classes_of(node->input(0), 0), ignored = integer(node->input(4));
      if (classes && ignored) add_limit(given, *classes, ignored);
    } else if (index.bound == operators::IndexBound::kTableRows) {
      auto table = parameter(node->input(0));
      if (table) add_limit(given, table->size(0), std::nullopt);
      if (table) add_length(given, table->size(0));
    }
    add_argument(given, is_label);
  }

  // Whether the condition depends on a number that is read out of a tensor.
  static bool depends_on_samples(const Value* condition) {
    std::vector<const Value*> left{condition};
    std::unordered_set<const Value*> seen;
    while (!left.empty()) {
      const Value* value = left.back();
      left.pop_back();
      if (!seen.insert(value).second) continue;
      const bool is_reading = operators::traits(value->node()->kind()).reads_number;
      for (const Value* input : value->node()->inputs()) {
        const bool is_tensor = input->type()->isSubtypeOf(*c10::TensorType::get());
        if (is_tensor && is_reading) return true;
        if (!is_tensor) left.push_back(input);
      }
      for (const Block* branch : value->node()->blocks()) {  // `a and bool(b)` is an If
        left.insert(left.end(), branch->outputs().begin(), branch->outputs().end());
      }
    }
    return false;
  }

  void add_limit(const Value* index, int64_t bound, std::optional<int64_t> ignored) {
    const auto part = part_of_input(index, {}, 0);
    if (part) use_.limits.push_back({part->input, bound, ignored, part->range});
  }

  static bool is_kind(const Node* node, std::string_view kind) { return node->kind().toQualString() == kind; }

  void add_argument(const Value* index, bool is_label) {
    const auto part = part_of_input(index, {}, 0);
    if (!part) return;
    const auto same = std::find_if(use_.arguments.begin(), use_.arguments.end(),
                                   [&](const IndexArgument& known) { return known.input == part->input; });
    if (same == use_.arguments.end()) {
      use_.arguments.push_back({part->input, is_label});
    } else {
      same->is_label = same->is_label && is_label;
    }
  }

  // Positions 0, 1, ... up to the length of an input: embedding(table, arange(input.size(1))).
  void add_length(const Value* index, int64_t bound) {
    const Node* node = index->node();
    while (is_kind(node, "aten::expand") || preserves_indices(node)) node = node->input(0)->node();
    if (!is_kind(node, "aten::arange")) return;
    const bool has_start = node->hasNamedInput("start");
    if (has_start && integer(node->namedInput("start")) != 0) return;
    if (auto length = length_of(node->namedInput("end"))) {
      length->bound = bound;
      use_.lengths.push_back(*length);
    }
  }

  // The input and the dim whose size the number is.
  std::optional<LengthLimit> length_of(const Value* number) const {
    while (is_kind(number->node(), "aten::Int") || is_kind(number->node(), "prim::NumToTensor")) {
      number = number->node()->input(0);
    }
    const Node* node = number->node();
    std::optional<int64_t> dim;
    if (is_kind(node, "prim::ListUnpack")) {  // B, T = x.shape
      dim = static_cast<int64_t>(number->offset());
      node = node->input(0)->node();
    } else if (is_kind(node, "aten::__getitem__")) {
      dim = integer(node->input(1));
      node = node->input(0)->node();
    } else if (is_kind(node, "aten::size") && node->inputs().size() == 2) {
      dim = integer(node->input(1));
    }
    if (!dim || !is_kind(node, "aten::size")) return std::nullopt;
    for (size_t i = 1; i < graph_->inputs().size(); ++i) {
      if (graph_->inputs()[i] == node->input(0)) return LengthLimit{i - 1, *dim, 0};
    }
    return std::nullopt;
  }

  static bool preserves_indices(const Node* node) {
    return operators::traits(node->kind()).elements != operators::Elements::kComputed;
  }
  // Leaves every index at its position.
  static bool preserves_positions(const Node* node) {
    return operators::traits(node->kind()).elements == operators::Elements::kKept;
  }

  struct Part {
    size_t input;
    IndexRange range;
    bool operator==(const Part&) const = default;
  };

  // The part of an argument that a value is; `range`: of this value. Empty: not known.
  // Through n branches in a row there are 2^n paths to the same argument, so each value is examined once.
  std::optional<Part> part_of_input(const Value* value, const IndexRange& range, int depth) const {
    if (value->node()->kind() != c10::prim::If) return find_part(value, range, depth);
    const auto key = std::make_tuple(value, range.dim, range.begin, range.end);
    if (auto known = parts_.find(key); known != parts_.end()) return known->second;
    return parts_[key] = find_part(value, range, depth);
  }

  std::optional<Part> find_part(const Value* value, const IndexRange& range, int depth) const {
    if (changed_.count(value) > 0) return std::nullopt;
    for (size_t i = 1; i < graph_->inputs().size(); ++i) {
      if (graph_->inputs()[i] == value) return Part{i - 1, range};
    }
    const Node* node = value->node();
    if (depth > kMaxDepth) return std::nullopt;
    if (node->kind() == c10::prim::If) {  // F.embedding's branches pass indices on; a model's may correct them
      std::optional<Part> same;
      for (const Block* branch : node->blocks()) {
        auto part = part_of_input(branch->outputs()[value->offset()], range, depth + 1);
        if (!part || (same && !(*part == *same))) return std::nullopt;
        same = std::move(part);
      }
      return same;
    }
    if (node->inputs().empty()) return std::nullopt;
    const std::string_view kind = node->kind().toQualString();
    if (kind == "aten::slice" || kind == "aten::select") {
      const auto taken = range_taken(node);
      if (!taken || (!taken->is_all() && !range.is_all())) return std::nullopt;
      return part_of_input(node->input(0), taken->is_all() ? range : *taken, depth + 1);
    }
    if (kind == "aten::pad" && extends_last_dim(node)) return part_of_input(node->input(0), range, depth + 1);
    if (!(range.is_all() ? preserves_indices(node) : preserves_positions(node))) return std::nullopt;
    return part_of_input(node->input(0), range, depth + 1);
  }

  // Whether pad(input, [0, n], mode, value) only adds elements behind the input's, as transformers' losses do before
  // they shift the labels.
  bool extends_last_dim(const Node* node) const {
    const auto is_text = [](const Value* value, const char* wanted) {
      const auto constant = torch::jit::toIValue(value);
      return constant && constant->isString() && constant->toStringRef() == wanted;
    };
    if (node->inputs().size() < 3 || !is_text(node->input(2), "constant")) return false;
    if (const auto widths = torch::jit::toIValue(node->input(1)); widths && widths->isIntList()) {
      const auto known = widths->toIntVector();
      return known.size() == 2 && known[0] == 0 && known[1] >= 0;
    }
    const Node* widths = node->input(1)->node();
    return widths->kind() == c10::prim::ListConstruct && widths->inputs().size() == 2 &&
           integer(widths->input(0)) == 0 && integer(widths->input(1)).value_or(-1) >= 0;
  }

  // slice(input, dim, begin, end, step), select(input, dim, index)
  std::optional<IndexRange> range_taken(const Node* node) const {
    if (node->inputs().size() < 3) return std::nullopt;
    const auto dim = integer(node->input(1));
    IndexRange range;
    const auto begin = bound_of_slice(node->input(2), range.begin);
    if (!dim || !begin) return std::nullopt;
    range.dim = *dim;
    range.begin = *begin;
    if (node->inputs().size() == 3) {
      if (*begin != -1) range.end = *begin + 1;
      return range;
    }
    const auto end = bound_of_slice(node->input(3), range.end), step = integer(node->input(4));
    if (!end || step != 1) return std::nullopt;
    range.end = *end;
    return range;
  }

  std::optional<int64_t> bound_of_slice(const Value* value, int64_t otherwise) const {
    const auto constant = torch::jit::toIValue(value);
    return constant && constant->isNone() ? otherwise : integer(value);
  }

  // A constant, or an attribute that holds a number.
  std::optional<int64_t> integer(const Value* value) const {
    if (const auto constant = torch::jit::toIValue(value)) {
      return constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
    }
    const auto held = attribute(value);
    return held && held->isInt() ? std::optional(held->toInt()) : std::nullopt;
  }

  std::optional<c10::IValue> attribute(const Value* value) const {
    const Node* node = value->node();
    if (node->kind() != c10::prim::GetAttr) return std::nullopt;
    auto owner = objects_.find(node->input(0));
    if (owner == objects_.end()) return std::nullopt;
    return owner->second->getAttr(node->s(c10::attr::name));
  }

  std::optional<at::Tensor> parameter(const Value* value) const {
    const auto held = attribute(value);
    return held && held->isTensor() ? std::optional(held->toTensor()) : std::nullopt;
  }

  // Class count of logits: rows of the weight of the linear layer that made them.
  std::optional<int64_t> classes_of(const Value* value, int depth) const {
    const Node* node = value->node();
    const std::string_view kind = node->kind().toQualString();
    if (depth > kMaxDepth || node->inputs().empty()) return std::nullopt;
    if (kind == "aten::linear") {
      auto weight = parameter(node->input(1));
      return weight && weight->dim() == 2 ? std::optional(weight->size(0)) : std::nullopt;
    }
    if (kind == "prim::If") {
      if (auto known = classes_.find(value); known != classes_.end()) return known->second;
      std::optional<int64_t> same;
      for (const Block* branch : node->blocks()) {
        const auto classes = classes_of(branch->outputs()[value->offset()], depth + 1);
        if (!classes || (same && same != classes)) return classes_[value] = std::nullopt;
        same = classes;
      }
      return classes_[value] = same;
    }
    if (kind == "aten::view" || kind == "aten::reshape") {
      const auto classes = classes_of(node->input(0), depth + 1);
      return classes && preserves_last_dim(node, *classes) ? classes : std::nullopt;
    }
    const bool scales =
        (kind == "aten::mul" || kind == "aten::div") && node->input(1)->type()->isSubtypeOf(*c10::NumberType::get());
    return scales || operators::traits(node->kind()).keeps_classes ? classes_of(node->input(0), depth + 1)
                                                                   : std::nullopt;
  }

  // view(-1, 50257), view(-1, logits.size(-1)) and view(-1, logits.shape[-1]) keep it; view(-1, number of choices) does
  // not.
  bool preserves_last_dim(const Node* node, int64_t size) const {
    const Node* shape = node->input(1)->node();
    if (shape->kind() != c10::prim::ListConstruct || shape->inputs().empty()) return false;
    const Value* last = shape->inputs().back();
    if (integer(last) == size) return true;
    const Node* origin = last->node();
    if (origin->kind() == c10::aten::Int && origin->input(0)->node()->kind() == c10::prim::NumToTensor) {  // in a trace
      origin = origin->input(0)->node()->input(0)->node();
    }
    const std::string_view kind = origin->kind().toQualString();
    if (kind == "aten::size" && origin->inputs().size() == 2) {
      return origin->input(0) == node->input(0) && integer(origin->input(1)) == -1;
    }
    if (kind != "aten::__getitem__" || integer(origin->input(1)) != -1) return false;
    const Node* sizes = origin->input(0)->node();
    return sizes->kind() == c10::aten::size && sizes->input(0) == node->input(0);
  }

  const std::shared_ptr<Graph> graph_;
  const graph::ObjectOfValue& objects_;
  std::unordered_set<const Value*> changed_;
  mutable std::map<std::tuple<const Value*, int64_t, int64_t, int64_t>, std::optional<Part>> parts_;
  mutable std::unordered_map<const Value*, std::optional<int64_t>> classes_;
  IndexUse use_;
};

}  // namespace

IndexUse scan_index_use(const graph::FlatGraph& flat) {
  return IndexUseScan(flat).run();
}

}  // namespace dslaunch::runtime::model::analysis
