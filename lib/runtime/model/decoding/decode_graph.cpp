#include "runtime/model/decoding/decode_graph.hpp"

#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/decoding/cached_attention.hpp"
#include "runtime/model/decoding/content_flow.hpp"
#include "runtime/model/decoding/eager_attention.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr std::string_view kAttention = "aten::scaled_dot_product_attention";

bool is_attention(const Node* node) {
  return node->kind().toQualString() == kAttention;
}

bool is_scored(const Node* node) {
  static const auto kind = c10::Symbol::fromQualString(kAttendScored);
  return node->kind() == kind;
}

// Of an operand: whether it has a row for each query, a column for each key.
TableUse use_of(const Node* node, size_t input) {
  const bool is_mask = (is_attention(node) && input == 3) || (is_scored(node) && input >= kFirstOther);
  return is_mask ? TableUse::kMask : TableUse::kRows;
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

class Planner {
 public:
  Planner(const TokenForward& forward, const std::set<std::string>& counted)
      : graph_(forward.graph->copy()), has_encoder_(forward.inputs.size() > 1), counted_(counted) {
    torch::jit::LowerAllTuples(graph_);
    ids_ = graph_->inputs().back();
    if (has_encoder_) encoder_ids_ = graph_->inputs()[1];
    layer_ = gather_eager_attention(*graph_, ids_);
  }

  Result<DecodeGraph> run() {
    const ContentFlow flow(graph_->block());
    flow_ = &flow;
    for (Node* node : graph_->nodes()) {
      if (is_of_tokens(node)) nodes_.push_back(node);
    }
    for (Node* node : nodes_) {
      if (auto found = find_outside_values(node); !found.ok()) return Failure{found.error()};
    }
    DecodeGraph out;
    out.tables = part_of({});
    out.table_uses = uses_;
    out.encoder = has_encoder_ ? encoder_part() : nullptr;
    cut_tokens();
    out.tokens = graph_;
    if (has_encoder_) {
      if (encoder_ids_->hasUses()) {
        return Failure{fmt::format("the decoder reads what the encoder has read by {}",
                                   encoder_ids_->uses()[0].user->kind().toQualString())};
      }
      graph_->eraseInput(1);
    }
    return out;
  }

 private:
  bool reads_tokens(const Value* value) const { return flow_->of(value).count(ids_) > 0; }
  bool reads_encoder(const Value* value) const { return has_encoder_ && flow_->of(value).count(encoder_ids_) > 0; }
  bool knows_sizes(const Value* value) const {
    const auto& sizes = flow_->sizes_of(value);
    return sizes.count(ids_) > 0 || (has_encoder_ && sizes.count(encoder_ids_) > 0);
  }

  bool is_of_tokens(const Node* node) const {
    return std::any_of(node->outputs().begin(), node->outputs().end(),
                       [this](const Value* output) { return reads_tokens(output); });
  }

  // What a node on tokens reads from elsewhere.
  Result<> find_outside_values(Node* node) {
    if (!node->blocks().empty()) {
      return Failure{fmt::format("{} depends on tokens", node->kind().toQualString())};
    }
    if (is_attention(node)) {
      const bool is_self = reads_tokens(node->input(1)) && reads_tokens(node->input(2));
      const bool is_cross =
          !reads_tokens(node->input(1)) && !reads_tokens(node->input(2)) && reads_tokens(node->input(0));
      if (!is_self && !is_cross) return Failure{"an attention has keys, and values of something else"};
      if (is_cross) {
        if (!reads_encoder(node->input(1)) || !reads_encoder(node->input(2))) {
          return Failure{"an attention has keys that are neither tokens nor the encoder's"};
        }
        for (const size_t input : {1, 2}) encoded_.try_emplace(node->input(input), encoded_.size());
      }
      if (reads_tokens(node->input(3))) return Failure{"a mask of attention depends on the tokens themselves"};
    }
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* value = node->input(i);
      const bool is_encoded = is_attention(node) && (i == 1 || i == 2) && encoded_.count(value) > 0;
      if (reads_tokens(value) || is_encoded) continue;
      if (reads_encoder(value)) {
        return Failure{fmt::format("{} reads what the encoder has read", node->kind().toQualString())};
      }
      if (is_tensor(value) && knows_sizes(value)) {
        note_table(value, use_of(node, i), node);
      }
    }
    return {};
  }

  // A value with two uses is two tables.
  void note_table(Value* value, TableUse use, const Node* reader) {
    if (counted_.count(value->debugName()) > 0) return;
    const auto [found, is_new] = tables_.try_emplace({value, use}, values_.size());
    if (!is_new) return;
    values_.push_back(value);
    uses_.push_back({use, reader->kind().toQualString(), value->debugName()});
  }

  // A copy of the graph whose result is a tuple of these values (`encoded`) or of all tables.
  std::shared_ptr<Graph> part_of(const std::vector<Value*>& encoded) const {
    auto copy = std::make_shared<Graph>();
    std::map<Value*, Value*> of;
    for (Value* input : graph_->inputs()) of[input] = copy->addInput()->copyMetadata(input);
    for (Node* node : graph_->nodes()) {
      Node* clone = copy->insertNode(copy->createClone(node, [&](Value* value) { return of.at(value); }));
      for (size_t i = 0; i < node->outputs().size(); ++i) of[node->output(i)] = clone->output(i);
    }
    std::vector<Value*> results;
    for (Value* value : encoded.empty() ? values_ : encoded) results.push_back(of.at(value));
    copy->registerOutput(copy->insertNode(copy->createTuple(results))->output());
    torch::jit::EliminateDeadCode(copy);
    return copy;
  }

  std::shared_ptr<Graph> encoder_part() const {
    std::vector<Value*> values(encoded_.size());
    for (const auto& [value, number] : encoded_) values[number] = value;
    if (values.empty()) return nullptr;
    auto part = part_of(values);
    if (part->inputs().back()->hasUses()) return nullptr;
    part->eraseInput(part->inputs().size() - 1);
    return part;
  }

  void cut_tokens() {
    std::map<std::pair<Value*, TableUse>, Value*> inputs;
    std::vector<Value*> by_number(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) {
      by_number[i] = graph_->addInput()->setType(c10::TensorType::get());
      inputs[{values_[i], uses_[i].use}] = by_number[i];
    }
    for (Node* node : nodes_) {
      std::vector<int64_t> tables;
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        const auto found = inputs.find({node->input(i), use_of(node, i)});
        if (found == inputs.end()) continue;
        node->replaceInput(i, found->second);
        tables.push_back(static_cast<int64_t>(i));
      }
      if (is_scored(node)) node->is_(tables_attribute(), std::move(tables));
      if (is_attention(node)) replace_attention(node);
    }
    select_rows();
    torch::jit::EliminateDeadCode(graph_);
  }

  // In front of the head, where the logits are a linear layer's output, or operators on each of its elements.
  void select_rows() {
    Value* rows = graph_->addInput()->setType(c10::TensorType::get());
    Value* logits = graph_->outputs()[0];
    Node* head = logits->node();
    while (operators::traits(head->kind()).elementwise || head->kind() == c10::aten::to || joins_classes(head)) {
      if (head->inputs().empty() || !reads_tokens(head->input(0))) break;
      const auto is_of_positions = [this](const Value* input) { return is_tensor(input) && knows_sizes(input); };
      if (std::count_if(head->inputs().begin(), head->inputs().end(), is_of_positions) != 1) break;
      head = head->input(0)->node();
    }
    if (head->kind() == c10::aten::linear && reads_tokens(head->input(0))) {
      const torch::jit::WithInsertPoint before(head);
      head->replaceInput(0, selected(head->input(0), rows));
    } else {
      const torch::jit::WithInsertPoint at_end(graph_->return_node());
      Value* some = selected(logits, rows);
      graph_->eraseOutput(0);
      graph_->registerOutput(some);
    }
  }

  // Whether it gathers what tensor ranks have of the last dim.
  static bool joins_classes(const Node* node) {
    static const auto kind = c10::Symbol::fromQualString("dslaunch::gather_from_tensor_group");
    if (node->kind() != kind) return false;
    const auto dim = torch::jit::toIValue(node->input(1));
    return dim && (dim->toInt() == -1 || dim->toInt() == 2);
  }

  Value* selected(Value* value, Value* rows) {
    return graph_->insert(c10::aten::index_select, {value, graph_->insertConstant(1), rows});
  }

  void replace_attention(Node* node) {
    const torch::jit::WithInsertPoint before(node);
    const auto inputs = node->inputs();
    const auto key = encoded_.find(inputs[1]), value = encoded_.find(inputs[2]);
    Node* own = nullptr;
    if (key == encoded_.end()) {
      own = graph_->create(c10::Symbol::fromQualString(kAttendCached),
                           {inputs[0], inputs[1], inputs[2], inputs[3], inputs[5], inputs[6], inputs[7],
                            graph_->insertConstant(layer_++)});
    } else {
      own = graph_->create(
          c10::Symbol::fromQualString(kAttendEncoded),
          {inputs[0], graph_->insertConstant(static_cast<int64_t>(key->second)),
           graph_->insertConstant(static_cast<int64_t>(value->second)), inputs[3], inputs[6], inputs[7]});
    }
    graph_->insertNode(own);
    own->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(own->output());
    node->destroy();
  }

  const std::shared_ptr<Graph> graph_;
  const bool has_encoder_;
  const std::set<std::string>& counted_;
  Value* ids_ = nullptr;
  Value* encoder_ids_ = nullptr;
  const ContentFlow* flow_ = nullptr;
  std::vector<Node*> nodes_;                              // on tokens
  std::map<std::pair<Value*, TableUse>, size_t> tables_;  // their numbers
  std::vector<Value*> values_;                            // of tables
  std::vector<Table> uses_;
  std::map<Value*, size_t> encoded_;  // their numbers
  int64_t layer_ = 0;                 // the next one of kept keys
};

}  // namespace

Result<DecodeGraph> plan_decoding(const TokenForward& forward, const std::set<std::string>& counted) {
  return Planner(forward, counted).run();
}

}  // namespace dslaunch::runtime::model::decoding
