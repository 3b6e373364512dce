#include "runtime/model/layers/fp8_layers.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/enum_names.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/linear.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kLeastWidth = 256;  // of a narrower layer the casts take longer than fp8 saves
constexpr int64_t kUnit = 16;         // of cuBLASLt's GEMMs
constexpr size_t kMaxNames = 4;       // of layers in a message

const auto kNumber = c10::Symbol::attr("fp8_candidate");  // of a GEMM, also in copies of its graph

bool is(const Node* node, std::string_view kind) {
  return kind == node->kind().toQualString();
}

// The argument that is the weight.
std::optional<size_t> weight_of(const Node* node) {
  if (is(node, kLinearOperator) || is(node, kMatmulOperator) || is(node, kChunkedOperator)) return 1;
  if (is(node, kAddmmOperator)) return 2;
  return std::nullopt;
}

// The GEMMs from whose output no other one is reached.
class Heads {
 public:
  explicit Heads(Block* block) { read(block); }
  bool contains(const Node* gemm) const { return heads_.contains(gemm); }

 private:
  void read(Block* block) {
    for (Node* node : block->nodes().reverse()) {
      for (Block* inner : node->blocks()) {
        if (leads_on(node->outputs())) add(inner->outputs());
        read(inner);
        if (leads_on(inner->inputs())) add(node->inputs());
      }
      const bool is_gemm = weight_of(node).has_value(), leads = leads_on(node->outputs());
      if (is_gemm && !leads) heads_.insert(node);
      if (is_gemm || leads) add(node->inputs());
    }
  }

  bool leads_on(at::ArrayRef<const Value*> values) const {
    return std::any_of(values.begin(), values.end(), [&](const Value* value) { return leading_.contains(value); });
  }
  bool leads_on(at::ArrayRef<Value*> values) const {
    return leads_on(at::ArrayRef<const Value*>(values.data(), values.size()));
  }
  void add(at::ArrayRef<Value*> values) { leading_.insert(values.begin(), values.end()); }

  std::unordered_set<const Value*> leading_;  // to a GEMM
  std::unordered_set<const Node*> heads_;
};

struct Weight {
  std::string name;
  at::Tensor value;
};

class Survey {
 public:
  explicit Survey(const torch::jit::Module& model)
      : flat_(graph::flatten_forward(model)), heads_(flat_.graph->block()) {
    for (const auto& each : model.named_parameters()) names_.emplace(each.value.unsafeGetTensorImpl(), each.name);
  }

  // `may`: by number of the GEMM; false where the layer of one of its calls cannot.
  void read(std::vector<bool>& may) {
    std::vector<bool> is_met(may.size());
    graph::for_each_node(flat_.graph->block(), [&](const Node* node) {
      const auto argument = weight_of(node);
      const auto weight = argument ? weight_behind(node->input(*argument)) : std::nullopt;
      if (!weight) return;
      const std::string why = why_not(node, weight->value);
      why.empty() ? add(chosen_, weight->name) : add(others_[why], weight->name);
      if (!node->hasAttribute(kNumber)) return;
      const auto number = static_cast<size_t>(node->i(kNumber));
      may[number] = why.empty() && (may[number] || !is_met[number]);
      is_met[number] = true;
    });
  }

  size_t num_chosen() const { return chosen_.size(); }

  // "23 of 25 linear layers; in bf16: 1 head ('head.weight'), ..."
  std::string text() const {
    size_t count = chosen_.size();
    std::vector<std::string> parts;
    for (const auto& [why, names] : others_) {
      count += names.size();
      const std::vector<std::string> some(names.begin(), names.begin() + std::min(names.size(), kMaxNames));
      parts.push_back(fmt::format("'{}'{} ({})", fmt::join(some, "', '"),
                                  names.size() > kMaxNames ? fmt::format(" and {} more", names.size() - kMaxNames) : "",
                                  why));
    }
    std::string out = fmt::format("{} of {} linear layers compute in fp8", chosen_.size(), count);
    if (!parts.empty()) out += fmt::format("; in bf16: {}", fmt::join(parts, ", "));
    if (!flat_.obstacle.empty()) out += fmt::format("; not all of the model was read: {}", flat_.obstacle);
    return out;
  }

 private:
  static void add(std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }

  std::optional<Weight> weight_behind(const Value* value) const {
    const Node* node = value->node();
    if (is(node, "aten::t") || is(node, "aten::transpose") || is(node, "aten::numpy_T") || is(node, "aten::permute")) {
      return weight_behind(node->input(0));
    }
    if (node->kind() != c10::prim::GetAttr) return std::nullopt;
    const auto owner = flat_.objects.find(node->input(0));
    if (owner == flat_.objects.end()) return std::nullopt;
    const auto held = owner->second->getAttr(node->s(c10::attr::name));
    if (!held.isTensor() || held.toTensor().dim() != 2) return std::nullopt;
    const auto name = names_.find(held.toTensor().unsafeGetTensorImpl());
    if (name == names_.end()) return std::nullopt;
    return Weight{name->second, held.toTensor()};
  }

  std::string why_not(const Node* node, const at::Tensor& weight) const {
    if (is(node, kChunkedOperator) || heads_.contains(node)) return "its output is read by no other layer";
    const int64_t narrow = std::min(weight.size(0), weight.size(1));
    if (narrow < kLeastWidth) return fmt::format("narrower than {}", kLeastWidth);
    if (weight.size(0) % kUnit != 0 || weight.size(1) % kUnit != 0) return fmt::format("not multiples of {}", kUnit);
    return {};
  }

  graph::FlatGraph flat_;
  const Heads heads_;
  std::unordered_map<const void*, std::string> names_;
  std::vector<std::string> chosen_;
  std::map<std::string, std::vector<std::string>> others_;  // by reason
};

}  // namespace

std::string use_fp8(const torch::jit::Module& model, config::Fp8Recipe recipe, bool keeps_weights) {
  take_weight_gradients(model, /*writes=*/false);  // whatever other passes have left
  std::vector<Node*> gemms;
  graph::for_every_node(model, [&](Node* node) {
    if (!weight_of(node) || is(node, kChunkedOperator)) return;
    node->i_(kNumber, static_cast<int64_t>(gemms.size()));
    gemms.push_back(node);
  });
  Survey survey(model);
  std::vector<bool> may(gemms.size());
  survey.read(may);
  for (size_t i = 0; i < gemms.size(); ++i) {
    gemms[i]->removeAttribute(kNumber);
    if (may[i]) set_fp8(gemms[i], recipe, keeps_weights);
  }
  if (survey.num_chosen() == 0) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("fp8.enabled: no layer of the model can compute in fp8: {}; set fp8.enabled to false",
                                survey.text()));
  }
  return fmt::format("fp8, {}: {}", config::name_of(config::kFp8Recipes, recipe), survey.text());
}

}  // namespace dslaunch::runtime::model::layers
