#include "runtime/model/decoding/token_cache.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "runtime/device/launch_overlap.hpp"
#include "runtime/model/decoding/cached_attention.hpp"
#include "runtime/model/decoding/decode_graph.hpp"
#include "runtime/model/decoding/position_tables.hpp"
#include "runtime/model/decoding/quantized_layers.hpp"
#include "runtime/model/decoding/row_products.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

c10::IValue run_code(const torch::jit::Code& code, Stack stack) {
  torch::jit::InterpreterState(code).run(stack);
  return std::move(stack.at(0));
}

std::vector<at::Tensor> tensors_of(const c10::IValue& tuple) {
  std::vector<at::Tensor> out;
  for (const auto& element : tuple.toTupleRef().elements()) out.push_back(element.toTensor());
  return out;
}

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// A graph that returns all tensors that its nodes compute; their names, and the operators that make them.
struct Observed {
  std::shared_ptr<Graph> graph;
  std::vector<std::string> names, operators;
};

Observed observe(Graph& graph) {
  Observed out{graph.copy(), {}, {}};
  std::vector<Value*> values;
  for (Node* node : out.graph->nodes()) {
    if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::GetAttr) continue;
    for (Value* output : node->outputs()) {
      if (!is_tensor(output) || quantized_weight_of(output)) continue;
      values.push_back(output);
      out.names.push_back(output->debugName());
      out.operators.emplace_back(node->kind().toQualString());
    }
  }
  out.graph->eraseOutput(0);
  out.graph->registerOutput(out.graph->appendNode(out.graph->createTuple(values))->output());
  return out;
}

// Copies of the graph keep the names that values have been given, and only these.
void name_values(Graph& graph) {
  size_t count = 0;
  for (Node* node : graph.nodes()) {
    for (Value* output : node->outputs()) output->setDebugName("value" + std::to_string(count++));
  }
}

// Whether rows of the model's own tables are chosen there by position, of which a GPU does not say when there are too
// few.
bool looks_up(Graph& graph) {
  return graph::any_node(graph.block(), [](const Node* node) {
    if (node->kind() == c10::aten::embedding) return node->input(1)->node()->kind() != c10::prim::Param;
    const bool selects = node->kind() == c10::aten::index || node->kind() == c10::aten::index_select ||
                         node->kind() == c10::aten::gather;
    return selects && node->input(0)->node()->kind() == c10::prim::GetAttr;
  });
}

c10::IValue attribute(const Value* value, const torch::jit::Module& module) {
  const Node* node = value->node();
  if (node->kind() != c10::prim::GetAttr) return module._ivalue();
  return attribute(node->input(), module).toObjectRef().getAttr(node->s(c10::attr::name));
}

// Of the module's tensors that the graph reads whole: not those of tables whose rows it looks up. 0: it reads those of
// some experts, as tokens choose them.
int64_t bytes_of_weights(Graph& graph, const torch::jit::Module& module) {
  static const auto grouped = c10::Symbol::fromQualString("aten::_grouped_mm");
  static const auto embedding_of_slice = c10::Symbol::fromQualString("dslaunch::embedding_of_slice");
  if (graph::any_node(graph.block(), [](const Node* node) { return node->kind() == grouped; })) return 0;
  std::map<const void*, int64_t> bytes;  // by address: a tied table is read once
  graph::for_each_node(graph.block(), [&](const Node* node) {
    for (const Value* input : node->inputs()) {
      if (const auto weight = quantized_weight_of(input)) bytes[weight.get()] = weight->bytes();
      const bool looks_up = node->kind() == c10::aten::embedding || node->kind() == embedding_of_slice;
      const bool is_looked_up = looks_up && input == node->input(0);
      if (is_looked_up || !is_tensor(input) || input->node()->kind() != c10::prim::GetAttr) continue;
      const c10::IValue value = attribute(input, module);
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      bytes[value.toTensor().const_data_ptr()] = static_cast<int64_t>(value.toTensor().nbytes());
    }
  });
  int64_t sum = 0;
  for (const auto& [address, size] : bytes) sum += size;
  return sum;
}

PositionTables::Growth growth_for(at::Device device, const CacheOptions& options, bool looks_up) {
  // A captured step is captured again when tables grow; one that may look up rows that are not there grows by itself.
  const int64_t step = device.is_cpu() ? 64 : options.max_positions > 0 || !looks_up ? 1024 : 1;
  return {.step = step, .most = options.max_positions};
}

// Whether two ways to compute the same give different numbers. In 16 bits the two round differently in every layer,
// which single numbers of a deep model show by several percent: there the whole of them counts. NaN differs.
bool differ(const at::Tensor& one, const at::Tensor& other) {
  if (one.sizes() != other.sizes()) return true;
  if (one.numel() == 0) return false;
  const at::Tensor a = one.to(at::kDouble), b = other.to(at::kDouble);
  const auto type = one.scalar_type();
  if (type == at::kBFloat16 || type == at::kHalf) {
    const double tolerance = type == at::kHalf ? 2e-2 : 1e-1, floor = 1e-3 * std::sqrt(static_cast<double>(a.numel()));
    return !((a - b).norm().item<double>() <= tolerance * std::max(floor, a.norm().item<double>()));
  }
  return !((a - b).abs().max().item<double>() <= 1e-3 * std::max(1e-3, a.abs().max().item<double>()));
}

// The dim along which three tensors are the parts of a whole; empty: there is none.
std::optional<int64_t> joined_dim(const at::Tensor& whole, const at::Tensor& part, int64_t of_whole, int64_t of_part) {
  if (whole.dim() != part.dim()) return std::nullopt;
  for (int64_t dim = 0; dim < whole.dim(); ++dim) {
    if (whole.size(dim) == of_whole && part.size(dim) == of_part) return dim;
  }
  return std::nullopt;
}

class TokenCache final : public CachedForward {
 public:
  TokenCache(CachedModel model, DecodeGraph graphs, size_t num_counted, const CacheOptions& options)
      : model_(std::move(model)),
        num_counted_(num_counted),
        graphs_(std::move(graphs)),
        tokens_(fused(), "tokens"),
        tables_code_(graphs_.tables, "tables"),
        tables_(
            graphs_.table_uses, [this](const PositionTables::Counts& counts) { return evaluate_tables(counts); },
            growth_for(model_.device, options, looks_up(*graphs_.tables))),
        cache_(options.max_bytes),
        steps_(check_steps(*graphs_.tokens)) {
    if (steps_.ok() && !model_.device.is_cuda() && !options.steps_on_host) steps_ = Failure{"the model runs on a CPU"};
    if (steps_.ok() && model_.device.is_cuda() && options.max_positions == 0 && looks_up(*graphs_.tables)) {
      steps_ = Failure{"it is not known how many positions the model has"};
    }
    if (graphs_.encoder) encoder_.emplace(graphs_.encoder, "encoder");
  }

  // Adds to `counted` values that do not become tables (plan_decoding()); the cache is then not ready.
  Result<> prepare(std::set<std::string>& counted) {
    const at::NoGradGuard no_grad;
    Result<> out;
    with_parameters([&] {
      out = tables_.find_dims(encoder_.has_value(), counted);
      if (out.ok() && counted.size() == num_counted_) out = compare_with_whole();
      if (out.ok() && counted.size() == num_counted_ && steps_.ok()) steps_ = compare_step();
      weight_bytes_ = bytes_of_weights(*graphs_.tokens, model_.module);
      return c10::IValue();
    });
    return out;
  }

  int open(const at::Tensor& encoder_ids) override {
    const at::NoGradGuard no_grad;
    const int text = cache_.open();
    if (!encoder_) return text;
    const at::Tensor ids = encoder_ids.to(model_.device);
    auto values = with_parameters([&] { return run_code(*encoder_, {model_.module._ivalue(), ids}); });
    encoded_[text] = std::make_shared<Encoded>(Encoded{tensors_of(values), ids.size(1)});
    return text;
  }

  int fork(int text) override {
    const int copy = cache_.fork(text);
    if (encoder_) encoded_[copy] = encoded_.at(text);
    return copy;
  }

  void close(int text) override {
    cache_.close(text);
    encoded_.erase(text);
  }

  at::Tensor append(const std::vector<Piece>& pieces) override {
    const at::NoGradGuard no_grad;
    const auto logits = with_parameters([&] { return run(tokens_, pieces); }).toTensor()[0];
    if (model_.wait) model_.wait(nullptr);
    return logits;
  }

  int64_t peak_bytes() const override { return cache_.peak_bytes(); }

  int64_t step_bytes() const override {
    if (weight_bytes_ == 0) return 0;
    int64_t bytes = weight_bytes_ + cache_.read_bytes();
    for (const auto& [text, encoded] : encoded_) {
      for (const at::Tensor& value : encoded->values) bytes += static_cast<int64_t>(value.nbytes());
    }
    return bytes;
  }

  Result<> can_step() const override { return steps_; }
  bool wait_until(const std::function<bool()>& is_reached) override {
    if (model_.wait) model_.wait(is_reached);
    return model_.wait != nullptr;
  }

  int64_t extend(const std::vector<int>& texts) override {
    int64_t longest = 0;
    for (const int text : texts) longest = std::max(longest, cache_.length(text) + 1);
    const at::NoGradGuard no_grad;
    with_parameters([&] {
      tables_.ensure({longest, 0});
      return c10::IValue();
    });
    for (const int text : texts) cache_.reserve(text, 1);
    cache_.place_pages();
    for (const int text : texts) cache_.advance(text, 1);
    return (longest + KeyCache::kPageTokens - 1) / KeyCache::kPageTokens;
  }

  int64_t layout() const override { return cache_.layout() + tables_.layout(); }

  void write_pages(int text, const at::Tensor& row) const override {
    const auto& pages = cache_.pages_of(text);
    std::copy(pages.begin(), pages.end(), row.mutable_data_ptr<int32_t>());
  }

  at::Tensor step(const Step& step) override {
    const at::NoGradGuard no_grad;
    if (!tickets_.defined()) tickets_ = at::zeros({kMaxTickets}, at::TensorOptions(model_.device).dtype(at::kInt));
    const StepPass own{step.positions, step.page_table, tickets_};
    const CachedPass pass{&cache_, {}, &own};
    return with_parameters([&] {
             Stack stack{model_.module._ivalue(), step.ids.unsqueeze(0)};
             for (auto& table : tables_.rows(step.positions)) stack.emplace_back(std::move(table));
             stack.emplace_back(at::arange(step.ids.numel(), step.ids.options()));
             const CachedPassScope scope(pass);
             const device::LaunchOverlap overlap;
             return run_code(tokens_, std::move(stack));
           })
        .toTensor()[0];
  }

 private:
  static constexpr int64_t kMaxTickets = 1 << 16;  // texts x heads

  // The graph that runs: as the one that is compared and explained, in fewer kernels.
  std::shared_ptr<Graph> fused() const {
    if (!model_.device.is_cuda()) return graphs_.tokens;
    auto graph = graphs_.tokens->copy();
    use_row_products(*graph);
    if (model_.fuse) model_.fuse(graph->block());
    return graph;
  }

  struct Encoded {
    std::vector<at::Tensor> values;
    int64_t positions = 0;
  };

  c10::IValue with_parameters(const std::function<c10::IValue()>& body) {
    if (has_parameters_) return body();
    has_parameters_ = true;
    const ScopeExit without([this] { has_parameters_ = false; });
    return model_.with_parameters(body);
  }

  std::vector<at::Tensor> evaluate_tables(const PositionTables::Counts& counts) const {
    const auto ids = [this](int64_t positions) {
      return at::zeros({1, positions}, at::TensorOptions(model_.device).dtype(at::kLong));
    };
    Stack stack{model_.module._ivalue()};
    if (encoder_) stack.emplace_back(ids(std::max<int64_t>(1, counts.encoded)));
    stack.emplace_back(ids(counts.tokens));
    return tensors_of(run_code(tables_code_, std::move(stack)));
  }

  // One pass over the pieces, whose tokens are then kept; logits behind each piece.
  c10::IValue run(const torch::jit::Code& code, const std::vector<Piece>& pieces) {
    CachedPass pass{&cache_, {}, nullptr};
    PositionTables::Counts counts;
    std::vector<int64_t> ids, positions, last;
    for (const Piece& piece : pieces) {
      Segment segment{piece.text, std::ssize(ids), std::ssize(piece.ids), cache_.length(piece.text), nullptr};
      ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
      for (int64_t i = 0; i < segment.count; ++i) positions.push_back(segment.position + i);
      last.push_back(std::ssize(ids) - 1);
      counts.tokens = std::max(counts.tokens, segment.position + segment.count);
      if (encoder_) {
        const Encoded& encoded = *encoded_.at(piece.text);
        segment.encoded = &encoded.values;
        counts.encoded = std::max(counts.encoded, encoded.positions);
      }
      pass.segments.push_back(segment);
    }
    tables_.ensure(counts);
    for (const Segment& segment : pass.segments) cache_.reserve(segment.text, segment.count);
    Stack stack{model_.module._ivalue(), at::tensor(ids).unsqueeze(0).to(model_.device)};
    for (auto& table : tables_.rows(at::tensor(positions).to(model_.device))) stack.emplace_back(std::move(table));
    stack.emplace_back(at::tensor(last).to(model_.device));
    const CachedPassScope scope(pass);
    auto out = run_code(code, std::move(stack));
    for (const Segment& segment : pass.segments) cache_.advance(segment.text, segment.count);
    return out;
  }

  std::vector<int64_t> probe_ids(int64_t count, int64_t first) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i) out.push_back((first + 7 * i + i * i) % model_.vocabulary);
    return out;
  }

  c10::IValue run_whole(const std::shared_ptr<Graph>& graph, const std::vector<int64_t>& ids,
                        const at::Tensor& encoder_ids) const {
    Stack stack{model_.module._ivalue()};
    if (encoder_) stack.emplace_back(encoder_ids);
    stack.emplace_back(at::tensor(ids).unsqueeze(0).to(model_.device));
    return run_code(torch::jit::Code(graph, "whole"), std::move(stack));
  }

  // The logits of two texts in one pass each beside those of pieces of 4 + 1 + 1 and of 3 tokens.
  Result<> compare_with_whole() {
    const auto one = probe_ids(6, 1), other = probe_ids(3, 5);
    const at::Tensor encoder_ids = at::tensor(probe_ids(4, 2)).unsqueeze(0).to(model_.device);
    const int a = open(encoder_ids), b = open(encoder_ids);
    const auto part = [&one](int64_t begin, int64_t end) {
      return std::vector<int64_t>(one.begin() + begin, one.begin() + end);
    };
    const auto last = [](const c10::IValue& logits, int64_t row) { return logits.toTensor()[0][row]; };
    const auto first = run(tokens_, {{a, part(0, 4)}});
    const auto second = run(tokens_, {{a, part(4, 5)}, {b, other}});
    const auto third = run(tokens_, {{a, part(5, 6)}});
    close(a);
    close(b);
    const auto whole = run_whole(model_.forward.graph, one, encoder_ids);
    const auto whole_other = run_whole(model_.forward.graph, other, encoder_ids);
    const bool same = !differ(last(whole, 3), last(first, 0)) && !differ(last(whole, 4), last(second, 0)) &&
                      !differ(last(whole, 5), last(third, 0)) && !differ(last(whole_other, 2), last(second, 1));
    return same ? Result<>() : Failure{first_difference(one, encoder_ids)};
  }

  // The logits behind a token that a step has read beside those of the pass over the whole text.
  Result<> compare_step() {
    const auto ids = probe_ids(6, 1);
    const int text = open({});
    const ScopeExit closed([&] { close(text); });
    run(tokens_, {{text, {ids.begin(), ids.end() - 1}}});
    const auto pages = extend({text});
    const at::Tensor table = at::zeros({1, pages}, at::kInt);
    write_pages(text, table[0]);
    try {
      const at::Tensor logits = step({at::tensor({ids.back()}).to(model_.device),
                                      at::tensor({int64_t{5}}).to(model_.device), table.to(model_.device)});
      if (!differ(run_whole(model_.forward.graph, ids, {}).toTensor()[0][5], logits[0])) return {};
      return Failure{"its logits differ from those of the whole text"};
    } catch (const std::exception& error) {
      std::string cause = error.what();
      if (const size_t end = cause.find('\n'); end != cause.npos) cause.resize(end);
      return Failure{std::move(cause)};
    }
  }

  // Of the values of a text in one pass and of the same text in pieces.
  std::string first_difference(const std::vector<int64_t>& ids, const at::Tensor& encoder_ids) {
    const auto of_whole = observe(*model_.forward.graph), of_pieces = observe(*graphs_.tokens);
    const auto whole = tensors_of(run_whole(of_whole.graph, ids, encoder_ids));
    const torch::jit::Code code(of_pieces.graph, "pieces");
    const int text = open(encoder_ids);
    const auto first = tensors_of(run(code, {{text, {ids.begin(), ids.begin() + 4}}}));
    const auto second = tensors_of(run(code, {{text, {ids.begin() + 4, ids.end()}}}));
    close(text);
    std::map<std::string, size_t> number;
    for (size_t i = 0; i < of_pieces.names.size(); ++i) number[of_pieces.names[i]] = i;
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto found = number.find(of_whole.names[i]);
      if (found == number.end()) continue;
      const at::Tensor &begin = first[found->second], &end = second[found->second];
      const auto dim = joined_dim(whole[i], begin, std::ssize(ids), 4);
      if (dim && differ(whole[i], at::cat({begin, end}, *dim))) {
        return fmt::format("{} mixes tokens of different positions", of_whole.operators[i]);
      }
    }
    return "the logits of tokens one after the other differ from those of the whole text";
  }

  const CachedModel model_;
  const size_t num_counted_;
  const DecodeGraph graphs_;
  const torch::jit::Code tokens_, tables_code_;
  std::optional<torch::jit::Code> encoder_;
  PositionTables tables_;
  KeyCache cache_;
  Result<> steps_;
  at::Tensor tickets_;
  int64_t weight_bytes_ = 0;  // that a step reads; 0: not known
  bool has_parameters_ = false;
  std::map<int, std::shared_ptr<const Encoded>> encoded_;  // by text
};

}  // namespace

Result<std::unique_ptr<CachedForward>> make_token_cache(CachedModel model, const CacheOptions& options) {
  name_values(*model.forward.graph);
  std::set<std::string> counted;
  try {
    for (;;) {
      const size_t num_counted = counted.size();
      auto graphs = plan_decoding(model.forward, counted);
      if (!graphs.ok()) return Failure{graphs.error()};
      auto cache = std::make_unique<TokenCache>(model, *std::move(graphs), num_counted, options);
      if (auto ready = cache->prepare(counted); !ready.ok()) return Failure{ready.error()};
      if (counted.size() == num_counted) return std::unique_ptr<CachedForward>(std::move(cache));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::string cause = error.what();
    if (const size_t end = cause.find('\n'); end != cause.npos) cause.resize(end);
    return Failure{"a pass over single tokens failed: " + cause};
  }
}

}  // namespace dslaunch::runtime::model::decoding
