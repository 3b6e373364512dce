#include "runtime/model/decoding/eager_attention.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/model/decoding/content_flow.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_kind(const Node* node, std::string_view kind) {
  return node->kind().toQualString() == kind;
}

bool is_product(const Node* node) {
  return is_kind(node, "aten::matmul") || is_kind(node, "aten::bmm");
}

std::optional<int64_t> integer(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
}

// Works on each score alone, or on the scores of one query.
bool is_of_scores(const Node* node) {
  if (is_kind(node, "aten::softmax")) return integer(node->input(1)) == -1 || integer(node->input(1)) == 3;
  const auto& traits = operators::traits(node->kind());
  return traits.elementwise || is_kind(node, "aten::dropout") || is_kind(node, "aten::to") ||
         is_kind(node, "aten::contiguous") || is_kind(node, "aten::type_as") || is_kind(node, "aten::float");
}

// The keys, of which the value is the transpose; null: it is not one.
Value* transposed(Value* value) {
  Node* node = value->node();
  if (!is_kind(node, "aten::transpose")) return nullptr;
  const auto one = integer(node->input(1)), other = integer(node->input(2));
  if (!one || !other) return nullptr;
  const std::set<int64_t> dims{*one, *other};
  const bool swaps_last = dims == std::set<int64_t>{-2, -1} || dims == std::set<int64_t>{2, 3};
  return swaps_last ? node->input(0) : nullptr;
}

struct Attention {
  Node* scores = nullptr;   // matmul(queries, keys)
  Node* product = nullptr;  // matmul(weights, values)
  std::vector<Node*> weights;
  Value* keys = nullptr;
};

class Search {
 public:
  Search(Graph& graph, const Value* ids) : graph_(graph), ids_(ids), flow_(graph.block()) {}

  std::vector<Attention> run() {
    std::vector<Attention> out;
    for (Node* node : graph_.nodes()) {
      if (auto found = attention_at(node)) out.push_back(*std::move(found));
    }
    return out;
  }

 private:
  bool reads_tokens(const Value* value) const { return flow_.of(value).count(ids_) > 0; }

  std::optional<Attention> attention_at(Node* node) const {
    if (!is_product(node) || !reads_tokens(node->input(1))) return std::nullopt;
    Attention out{.product = node};
    bool has_softmax = false;
    // Back through the operand that is made of tokens.
    for (Value* value = node->input(0); out.scores == nullptr;) {
      Node* made_by = value->node();
      if (value->uses().size() != 1) return std::nullopt;
      if (is_product(made_by)) {
        out.scores = made_by;
        break;
      }
      if (!is_of_scores(made_by)) return std::nullopt;
      has_softmax = has_softmax || is_kind(made_by, "aten::softmax");
      out.weights.push_back(made_by);
      Value* next = nullptr;
      for (Value* input : made_by->inputs()) {
        if (!reads_tokens(input)) continue;
        if (next != nullptr) return std::nullopt;
        next = input;
      }
      if (next == nullptr) return std::nullopt;
      value = next;
    }
    out.keys = transposed(out.scores->input(1));
    if (!has_softmax || out.keys == nullptr || !reads_tokens(out.scores->input(0))) return std::nullopt;
    std::reverse(out.weights.begin(), out.weights.end());
    return out;
  }

  Graph& graph_;
  const Value* ids_;
  const ContentFlow flow_;
};

// The node, in the place of the multiplication by the values.
void replace(Graph& graph, const Attention& attention, int64_t layer) {
  auto weights = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> inside{{attention.scores->output(), weights->addInput()}};
  std::vector<Value*> others;
  const auto of = [&](Value* value) {
    const auto found = inside.find(value);
    if (found != inside.end()) return found->second;
    Value* own = nullptr;
    if (const auto constant = torch::jit::toIValue(value)) {
      own = weights->insertConstant(*constant);
    } else {
      own = weights->addInput()->copyMetadata(value);
      others.push_back(value);
    }
    inside[value] = own;
    return own;
  };
  for (Node* node : attention.weights) {
    for (Value* input : node->inputs()) of(input);
    Node* clone = weights->insertNode(weights->createClone(node, of));
    inside[node->output()] = clone->output();
  }
  weights->registerOutput(inside.at(attention.product->input(0)));
  std::vector<Value*> inputs{attention.scores->input(0), attention.keys, attention.product->input(1)};
  inputs.insert(inputs.end(), others.begin(), others.end());
  Node* node = graph.create(c10::Symbol::fromQualString(kAttendScored), inputs);
  node->g_(c10::attr::Subgraph, weights);
  node->i_(layer_attribute(), layer);
  node->is_(tables_attribute(), {});
  node->insertBefore(attention.product);
  node->output()->copyMetadata(attention.product->output());
  attention.product->output()->replaceAllUsesWith(node->output());
  attention.product->destroy();
  for (auto at = attention.weights.rbegin(); at != attention.weights.rend(); ++at) (*at)->destroy();
  if (!attention.scores->output()->hasUses()) attention.scores->destroy();
}

}  // namespace

c10::Symbol layer_attribute() {
  return c10::Symbol::attr("layer");
}

c10::Symbol tables_attribute() {
  return c10::Symbol::attr("tables");
}

int gather_eager_attention(Graph& graph, const Value* ids) {
  const auto found = Search(graph, ids).run();
  int64_t layer = 0;
  for (const auto& attention : found) replace(graph, attention, layer++);
  return static_cast<int>(found.size());
}

}  // namespace dslaunch::runtime::model::decoding
