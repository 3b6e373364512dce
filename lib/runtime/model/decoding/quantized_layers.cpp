#include "runtime/model/decoding/quantized_layers.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr char kWholeWeight[] = "dslaunch::whole_weight";
constexpr int64_t kLeastSize = 32;  // narrower layers, such as routers, are a small part of a model
const auto kWeight = c10::Symbol::attr("weight");

torch::jit::Operation whole_operation(const Node* node) {
  return [weight = node->ival(kWeight).toCustomClass<QuantizedWeight>()](torch::jit::Stack& stack) {
    torch::jit::drop(stack, 1);
    stack.emplace_back(weight->whole());
  };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::whole_weight(...) -> Tensor",
                                                                        whole_operation,
                                                                        c10::AliasAnalysisKind::PURE_FUNCTION)});

// Where the layer has its weight; nothing: it is not a linear layer.
std::optional<size_t> weight_operand(const Node* node) {
  if (node->kind() == c10::aten::linear) return 1;
  if (node->kind() != c10::aten::addmm) return std::nullopt;
  for (const size_t factor : {3, 4}) {
    const auto value = torch::jit::toIValue(node->input(factor));
    if (!value || !value->isScalar() || value->toScalar().toDouble() != 1) return std::nullopt;
  }
  return 2;
}

class Layers {
 public:
  Layers(Graph& graph, const c10::intrusive_ptr<c10::ivalue::Object>& self, const ParameterTable& table,
         const ParameterAt& parameter_at, WeightType type)
      : graph_(graph), self_(self), table_(table), parameter_at_(parameter_at), type_(type) {}

  QuantizedLayers run() {
    graph::for_each_node(graph_.block(), [this](Node* node) { note(node); });
    QuantizedLayers out;
    for (auto& [parameter, uses] : uses_) {
      if (uses.layers.empty()) continue;
      const ParameterInfo& info = table_.parameters[static_cast<size_t>(parameter)];
      const bool is_transposed = uses.layers[0]->kind() == c10::aten::addmm;
      const std::string obstacle = obstacle_of(info, is_transposed);
      if (!obstacle.empty()) {
        out.kept.push_back(fmt::format("'{}': {}", info.name, obstacle));
        continue;
      }
      const auto weight = c10::make_intrusive<QuantizedWeight>(type_);
      const c10::IValue handle(weight);
      for (Node* layer : uses.layers) {
        if ((layer->kind() == c10::aten::addmm) != is_transposed) {
          uses.is_read_otherwise = true;
        } else {
          replace_weight(layer, handle);
        }
      }
      out.weights[parameter] = {taker_of(weight, info.name, is_transposed), uses.is_read_otherwise};
    }
    torch::jit::EliminateDeadCode(graph_.block());
    return out;
  }

 private:
  struct Uses {
    std::vector<Node*> layers;
    bool is_read_otherwise = false;
  };

  void note(const Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    const auto object = object_of(node->input(0));
    if (!object) return;
    const auto slot = object->type()->findAttributeSlot(node->s(c10::attr::name));
    const auto parameter = slot ? parameter_at_({object.get(), *slot}) : std::nullopt;
    if (!parameter) return;
    Uses& uses = uses_[*parameter];
    for (const auto& use : node->output()->uses()) {
      if (weight_operand(use.user) == use.offset) {
        uses.layers.push_back(use.user);
      } else {
        uses.is_read_otherwise = true;
      }
    }
  }

  c10::intrusive_ptr<c10::ivalue::Object> object_of(const Value* value) const {
    if (value == graph_.inputs()[0]) return self_;
    const Node* node = value->node();
    if (node->kind() != c10::prim::GetAttr) return {};
    const auto owner = object_of(node->input(0));
    if (!owner) return {};
    const c10::IValue held = owner->getAttr(node->s(c10::attr::name));
    return held.isObject() ? held.toObject() : c10::intrusive_ptr<c10::ivalue::Object>();
  }

  std::string obstacle_of(const ParameterInfo& info, bool is_transposed) const {
    if (info.shape.size() != 2 || !at::isFloatingType(info.dtype)) return "it is not a matrix of numbers";
    const int64_t outputs = info.shape[is_transposed ? 1 : 0], inputs = info.shape[is_transposed ? 0 : 1];
    if (std::min(outputs, inputs) < kLeastSize) {
      return fmt::format("it is narrow, [{}, {}]", info.shape[0], info.shape[1]);
    }
    const int64_t step = QuantizedWeight::columns_of(type_);
    if (inputs % step == 0) return {};
    return fmt::format("{} does not divide its {} inputs", step, inputs);
  }

  void replace_weight(Node* layer, const c10::IValue& handle) {
    static const auto kind = c10::Symbol::fromQualString(kWholeWeight);
    const torch::jit::WithInsertPoint before(layer);
    Node* whole = graph_.insertNode(graph_.create(kind, {graph_.inputs()[0]}, 1));
    whole->ival_(kWeight, handle);
    whole->output()->setType(c10::TensorType::get());
    if (layer->kind() == c10::aten::linear) {
      layer->replaceInput(1, whole->output());
      return;
    }
    Value* out = graph_.insert(c10::aten::linear, {layer->input(1), whole->output(), layer->input(0)});
    out->copyMetadata(layer->output());
    layer->output()->replaceAllUsesWith(out);
    layer->destroy();
  }

  static std::function<int64_t(const at::Tensor&, at::ScalarType)> taker_of(const QuantizedWeightPtr& weight,
                                                                            const std::string& name,
                                                                            bool is_transposed) {
    return [weight, name, is_transposed](const at::Tensor& value, at::ScalarType dtype) {
      try {
        weight->quantize(is_transposed ? value.t() : value, dtype);
      } catch (const UserError& error) {
        throw UserError(error.code(), fmt::format("cannot quantize parameter '{}': {}", name, error.what()));
      }
      return weight->bytes();
    };
  }

  Graph& graph_;
  const c10::intrusive_ptr<c10::ivalue::Object> self_;
  const ParameterTable& table_;
  const ParameterAt& parameter_at_;
  const WeightType type_;
  std::map<int, Uses> uses_;  // by parameter
};

}  // namespace

QuantizedLayers quantize_layers(Graph& graph, const c10::intrusive_ptr<c10::ivalue::Object>& self,
                                const ParameterTable& table, const ParameterAt& parameter_at, WeightType type) {
  return Layers(graph, self, table, parameter_at, type).run();
}

QuantizedWeightPtr quantized_weight_of(const Value* value) {
  static const auto kind = c10::Symbol::fromQualString(kWholeWeight);
  const Node* node = value->node();
  return node->kind() == kind ? node->ival(kWeight).toCustomClass<QuantizedWeight>() : QuantizedWeightPtr();
}

}  // namespace dslaunch::runtime::model::decoding
