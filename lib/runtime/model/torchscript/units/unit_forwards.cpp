#include "runtime/model/torchscript/units/unit_forwards.hpp"

#include <utility>

namespace dslaunch::runtime::model::units {
namespace {

using torch::jit::Graph;
using torch::jit::Node;

// A class, not a capsule: LibTorch cannot print nodes with capsules.
const torch::class_<UnitForward> kForwardClass("dslaunch", "UnitForward");

const auto kRunUnit = c10::Symbol::fromQualString("dslaunch::run_unit");
const auto kForward = c10::Symbol::attr("forward");  // of such a node

// Null: the class has no forward, or one that is not TorchScript.
std::shared_ptr<Graph> forward_graph(const c10::ClassType& type) {
  auto* method = type.findMethod("forward");
  return method != nullptr && method->isGraphFunction() ? torch::jit::toGraphFunction(*method).graph() : nullptr;
}

std::shared_ptr<Graph> copy_of_forward(const c10::ClassType& type) {
  type.getMethod("forward").ensure_defined();
  return forward_graph(type)->copy();
}

}  // namespace

UnitForward::UnitForward(const c10::ClassType& type)
    : original(c10::QualifiedName(type.name()->qualifiedName() + ".unit_forward"), copy_of_forward(type), nullptr) {
  original._set_ignore_amp(true);  // as all functions of a model (model_file.hpp)
}

void replace_forward(const c10::ClassType& type, c10::intrusive_ptr<UnitForward> forward) {
  const auto graph = forward_graph(type);
  const auto result = forward->original.graph()->outputs().at(0)->type();
  while (!graph->outputs().empty()) graph->eraseOutput(0);
  while (graph->nodes().begin() != graph->nodes().end()) (*graph->nodes().rbegin())->destroy();
  auto* node = graph->create(kRunUnit, graph->inputs(), 1);
  node->ival_(kForward, std::move(forward));
  node->output()->setType(result);
  graph->appendNode(node);
  graph->registerOutput(node->output());
}

c10::intrusive_ptr<UnitForward> unit_forward(const Node& node) {
  return node.ival(kForward).toCustomClass<UnitForward>();
}

c10::intrusive_ptr<UnitForward> unit_forward(const c10::ClassType& type) {
  const auto graph = forward_graph(type);
  if (graph == nullptr || graph->nodes().begin() == graph->nodes().end()) return {};
  const Node* first = *graph->nodes().begin();
  return first->kind() == kRunUnit ? unit_forward(*first) : c10::intrusive_ptr<UnitForward>();
}

}  // namespace dslaunch::runtime::model::units
