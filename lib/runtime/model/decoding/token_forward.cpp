#include "runtime/model/decoding/token_forward.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/decoding/content_flow.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/saved_graphs.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_one_of(const Node* node, const std::set<std::string_view>& kinds) {
  return kinds.contains(node->kind().toQualString());
}

// Between a head and the cross entropy over its logits: what selects positions, arranges them and casts.
const std::set<std::string_view>& arrangements() {
  static const std::set<std::string_view> kinds{
      "aten::view",    "aten::reshape", "aten::flatten",      "aten::contiguous", "aten::to",
      "aten::float",   "aten::slice",   "aten::transpose",    "aten::permute",    "aten::alias",
      "aten::clone",   "aten::expand",  "aten::squeeze",      "aten::unsqueeze",  "aten::index",
      "aten::type_as", "aten::detach",  "aten::_unsafe_view", "aten::narrow",     "prim::unchecked_cast"};
  return kinds;
}

Value* before_arrangement(Value* value) {
  while (is_one_of(value->node(), arrangements())) value = value->node()->input(0);
  return value;
}

struct Loss {
  Value* logits = nullptr;
  Value* target = nullptr;
};

// Of nodes outside branches: a loss within one is not computed in every run.
std::vector<Loss> find_losses(Graph& graph) {
  std::vector<Loss> out;
  for (Node* node : graph.nodes()) {
    if (is_one_of(node, {"aten::cross_entropy_loss"})) {
      out.push_back({before_arrangement(node->input(0)), node->input(1)});
    } else if (is_one_of(node, {"aten::nll_loss", "aten::nll_loss_nd", "aten::nll_loss2d"})) {
      const Node* softmax = before_arrangement(node->input(0))->node();
      if (is_one_of(softmax, {"aten::log_softmax"})) {
        out.push_back({before_arrangement(softmax->input(0)), node->input(1)});
      }
    }
  }
  return out;
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// The entry "logits" of what forward returns; null: there is none of this name.
Value* named_logits(Graph& graph) {
  Node* node = graph.outputs()[0]->node();
  if (node->kind() == c10::prim::DictConstruct) {
    for (size_t i = 0; i + 1 < node->inputs().size(); i += 2) {
      const auto key = torch::jit::toIValue(node->input(i));
      if (key && key->isString() && key->toStringRef() == "logits") return node->input(i + 1);
    }
  } else if (node->kind() == c10::prim::TupleConstruct) {
    const auto type = graph.outputs()[0]->type()->cast<c10::TupleType>();
    if (!type || !type->schema()) return nullptr;
    const auto& fields = type->schema()->arguments();
    for (size_t i = 0; i < node->inputs().size() && i < fields.size(); ++i) {
      if (fields[i].name() == "logits") return node->input(i);
    }
  }
  return nullptr;
}

// What an argument beside the tokens is for text without padding.
enum class Filling { kNone, kOnes, kZeros, kPositions };

Filling filling_of(const std::string& name) {
  const auto has = [&name](const char* part) { return name.find(part) != name.npos; };
  if (has("mask")) return Filling::kOnes;
  if (has("token_type") || has("segment")) return Filling::kZeros;
  if (has("position")) return Filling::kPositions;
  return Filling::kNone;
}

std::string plain_name(const Value* input) {
  const std::string name = input->debugName();
  return name.substr(0, name.find('.'));
}

class Cutting {
 public:
  explicit Cutting(graph::FlatGraph flat) : graph_(std::move(flat.graph)) {
    const auto& arguments = flat.module.get_method("forward").function().getSchema().arguments();
    for (size_t i = 1; i < arguments.size() && i < graph_->inputs().size(); ++i) names_.push_back(arguments[i].name());
  }

  Result<TokenForward> run() {
    if (auto found = find_logits(); !found.ok()) return Failure{found.error()};
    cut_behind_logits();
    if (auto found = find_ids(); !found.ok()) return Failure{found.error()};
    return replace_inputs();
  }

 private:
  Result<> find_logits() {
    const auto losses = find_losses(*graph_);
    logits_ = named_logits(*graph_);
    std::set<Value*> operands;
    for (const auto& loss : losses) operands.insert(loss.logits);
    if (logits_ == nullptr && operands.size() > 1) {
      return Failure{fmt::format("it computes cross entropies of {} tensors, and none of its outputs is named logits",
                                 operands.size())};
    }
    if (logits_ == nullptr && !operands.empty()) logits_ = *operands.begin();
    if (logits_ == nullptr && is_tensor(graph_->outputs()[0])) logits_ = graph_->outputs()[0];
    if (logits_ == nullptr) return Failure{"none of its outputs is named logits, and it computes no cross entropy"};
    const ContentFlow flow(graph_->block());
    for (const auto& loss : losses) {
      const auto& of = flow.of(loss.target);
      labels_.insert(of.begin(), of.end());
    }
    return {};
  }

  void cut_behind_logits() {
    while (!graph_->outputs().empty()) graph_->eraseOutput(0);
    graph_->registerOutput(logits_);
    torch::jit::EliminateDeadCode(graph_);
  }

  // Every embedding, or call that stays in the graph, whose indices come from arguments.
  Result<> find_ids() {
    const ContentFlow flow(graph_->block());
    for (Node* node : graph_->nodes()) {
      if (!is_one_of(node, {"aten::embedding"})) continue;
      for (const Value* argument : flow.of(node->input(1))) add_reader(node->input(1), argument);
    }
    for (size_t i = 1; i < graph_->inputs().size(); ++i) {
      Value* input = graph_->inputs()[i];
      if (input->hasUses() && !is_filled(input) && labels_.count(input) == 0 && input != decoder_argument_) {
        others_.push_back(input);
      }
    }
    if (num_label_readers_.size() > 1) return Failure{"several embeddings read what depends on its labels"};
    if (decoder_ids_ == nullptr && others_.empty()) return Failure{"no embedding reads ids out of its arguments"};
    const size_t expected = decoder_ids_ == nullptr ? 1 : std::min<size_t>(1, others_.size());
    if (others_.size() > expected) {
      return Failure{fmt::format("what its argument '{}' is for a text is not known", name_of(others_[expected]))};
    }
    for (const Value* other : others_) {
      if (readers_.count(other) == 0) {
        return Failure{fmt::format("its argument '{}' does not hold ids: no embedding reads it", name_of(other))};
      }
    }
    return {};
  }

  void add_reader(Value* index, const Value* argument) {
    readers_.insert(argument);
    if (labels_.count(argument) > 0) {
      num_label_readers_.insert(index);
      decoder_ids_ = index;
    } else if (name_of(argument) == "decoder_input_ids") {
      decoder_argument_ = decoder_ids_ = const_cast<Value*>(argument);
    }
  }

  bool is_filled(const Value* input) const { return filling_of(name_of(input)) != Filling::kNone; }

  std::string name_of(const Value* input) const {
    const size_t index = input->offset();
    return index >= 1 && index <= names_.size() ? names_[index - 1] : plain_name(input);
  }

  Result<TokenForward> replace_inputs() {
    TokenForward out{graph_, {}};
    const size_t count = graph_->inputs().size();
    const bool has_encoder = decoder_ids_ != nullptr && !others_.empty();
    Value* encoder_ids = nullptr;
    if (has_encoder) {
      encoder_ids = add_input(out, name_of(others_[0]));
      others_[0]->replaceAllUsesWith(encoder_ids);
    }
    Value* ids = add_input(out, decoder_ids_ == nullptr ? name_of(others_[0]) : "decoder_input_ids");
    (decoder_ids_ == nullptr ? others_[0] : decoder_ids_)->replaceAllUsesWith(ids);
    for (size_t i = 1; i < count; ++i) {
      Value* input = graph_->inputs()[i];
      if (!input->hasUses()) continue;
      // Of labels only sizes are left: those of the decoder's ids.
      const bool is_of_decoder = !has_encoder || name_of(input).starts_with("decoder");
      input->replaceAllUsesWith(labels_.count(input) > 0 ? ids : filled(input, is_of_decoder ? ids : encoder_ids));
    }
    torch::jit::EliminateDeadCode(graph_);
    for (size_t i = count - 1; i >= 1; --i) graph_->eraseInput(i);
    return out;
  }

  Value* add_input(TokenForward& out, const std::string& name) {
    out.inputs.push_back(name);
    return graph_->addInput()->setType(c10::TensorType::get());
  }

  Value* filled(const Value* input, Value* ids) {
    const torch::jit::WithInsertPoint at_start(*graph_->nodes().begin());
    Graph& graph = *graph_;
    if (input->type()->kind() == c10::TypeKind::OptionalType) return graph.insertConstant(c10::IValue());
    switch (filling_of(name_of(input))) {
      case Filling::kOnes:
        return graph.insert(c10::aten::ones_like, {ids});
      case Filling::kZeros:
        return graph.insert(c10::aten::zeros_like, {ids});
      default: {
        Value* length = graph.insert(c10::aten::size, {ids, graph.insertConstant(1)});
        return graph.insert(c10::aten::expand_as, {graph.insert(c10::aten::arange, {length}), ids});
      }
    }
  }

  const std::shared_ptr<Graph> graph_;
  std::vector<std::string> names_;  // of the arguments, without self
  Value* logits_ = nullptr;
  std::set<const Value*> labels_;   // arguments that the targets of the loss come from
  std::set<const Value*> readers_;  // arguments that embeddings read
  std::set<Value*> num_label_readers_;
  Value* decoder_ids_ = nullptr;       // what the decoder's embedding reads; null: there is one kind of ids
  Value* decoder_argument_ = nullptr;  // an argument of that name
  std::vector<Value*> others_;         // other arguments that are used
};

}  // namespace

Result<TokenForward> cut_to_logits(const torch::jit::Module& module, const std::vector<graph::UnitCandidate>& kept) {
  graph::FlatGraph flat = kept.empty() ? graph::flatten_resolved(module) : graph::flatten_forward(module, kept);
  if (!kept.empty()) torch::jit::ConstantPropagationImmutableTypes(flat.graph);
  if (!flat.obstacle.empty()) return Failure{flat.obstacle};
  if (flat.graph->outputs().size() != 1) return Failure{"it does not return one value"};
  torch::jit::LowerSimpleTuples(flat.graph);
  if (flat.graph->outputs().size() != 1) return Failure{"it does not return one value"};
  return Cutting(std::move(flat)).run();
}

void replace_forward(const torch::jit::Module& module, const TokenForward& cut) {
  auto& forward = torch::jit::toGraphFunction(module.get_method("forward").function());
  const auto& whole = forward.getSchema();
  std::vector<c10::Argument> arguments{whole.arguments().at(0)};
  for (const auto& name : cut.inputs) arguments.emplace_back(name, c10::TensorType::get());
  c10::FunctionSchema schema(whole.name(), whole.overload_name(), std::move(arguments),
                             {c10::Argument("", c10::TensorType::get())});
  graph::replace_graph(*forward.graph(), *cut.graph);
  forward.setSchema(std::move(schema));
}

}  // namespace dslaunch::runtime::model::decoding
