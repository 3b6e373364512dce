#include "runtime/model/stages/stage_graph.hpp"
#include "runtime/model/graph/memory_types.hpp"
#include "runtime/model/graph/saved_graphs.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <unordered_map>
#include <utility>

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

CarriedKind kind_of(const c10::TypePtr& leaf) {
  switch (leaf->kind()) {
    case c10::TypeKind::IntType:
      return CarriedKind::kInt;
    case c10::TypeKind::FloatType:
      return CarriedKind::kFloat;
    case c10::TypeKind::BoolType:
      return CarriedKind::kBool;
    default:
      return CarriedKind::kTensor;
  }
}

class StageGraph {
 public:
  StageGraph(const FlatForward& flat, const StageRange& range, const StageNeeds& needs)
      : flat_(flat), range_(range), needs_(needs), graph_(std::make_shared<Graph>()) {}

  std::shared_ptr<Graph> build() {
    add_inputs();
    for (size_t position : needs_.nodes) copy(flat_.nodes[position]);
    add_output();
    return graph_;
  }
  // Of the inputs between self and the model's own.
  size_t num_carried() const { return num_carried_; }

 private:
  void add_inputs() {
    const auto inputs = flat_.graph->inputs();
    copies_[inputs[0]] = graph_->addInput()->copyMetadata(inputs[0]);
    // A carried value may be an argument that was changed in place.
    for (Value* value : needs_.carried_in) add_carried(value);
    for (size_t i = 1; i < inputs.size(); ++i) {
      Value* input = graph_->addInput()->copyMetadata(inputs[i]);
      copies_.try_emplace(inputs[i], input);
    }
  }

  void add_carried(Value* value) {
    std::vector<Value*> leaves;
    for (const auto& type : graph::leaves_of(value->type())) {
      Value* leaf =
          graph_->addInput()->setType(type->kind() == c10::TypeKind::TensorType ? c10::TensorType::get() : type);
      num_carried_ += 1;
      leaves.push_back(needs_.copied.count(value) && type->kind() == c10::TypeKind::TensorType ? copied(leaf) : leaf);
    }
    size_t next = 0;
    copies_[value] = assemble(value->type(), leaves, next);
  }

  // Received tensors are leaves of autograd's graph, which nothing may change in place.
  Value* copied(Value* leaf) { return graph_->insert(c10::aten::clone, {leaf}); }

  Value* assemble(const c10::TypePtr& type, const std::vector<Value*>& leaves, size_t& next) {
    const auto tuple = type->cast<c10::TupleType>();
    if (!tuple) return leaves.at(next++);
    std::vector<Value*> elements;
    for (const auto& element : tuple->elements()) elements.push_back(assemble(element, leaves, next));
    return graph_->insertNode(graph_->createTuple(elements, tuple->schema() ? tuple : nullptr))->output();
  }

  void copy(Node* node) {
    Node* out = graph_->insertNode(graph_->createClone(node, [&](Value* value) { return copies_.at(value); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) copies_[node->output(i)] = out->output(i);
  }

  void add_output() {
    if (range_.end == flat_.nodes.size()) {
      for (Value* output : flat_.graph->outputs()) graph_->registerOutput(copies_.at(output));
      return;
    }
    std::vector<Value*> leaves;
    for (Value* value : range_.live_out) take_apart(copies_.at(value), leaves);
    graph_->registerOutput(graph_->insertNode(graph_->createTuple(leaves))->output());
  }

  void take_apart(Value* value, std::vector<Value*>& out) {
    if (value->type()->kind() != c10::TypeKind::TupleType) {
      out.push_back(value);
      return;
    }
    Node* unpacked = graph_->insertNode(graph_->createTupleUnpack(value));
    for (Value* element : unpacked->outputs()) take_apart(element, out);
  }

  const FlatForward& flat_;
  const StageRange& range_;
  const StageNeeds& needs_;
  const std::shared_ptr<Graph> graph_;
  std::unordered_map<Value*, Value*> copies_;
  size_t num_carried_ = 0;
};

// As argument names of the whole forward cannot begin.
std::string carried_name(size_t i) {
  return "carried." + std::to_string(i);
}

c10::FunctionSchema schema_of_stage(const c10::FunctionSchema& whole, const Graph& graph, size_t num_carried) {
  const auto& arguments = whole.arguments();
  std::vector<c10::Argument> out{arguments.at(0)};
  for (size_t i = 0; i < num_carried; ++i) out.emplace_back(carried_name(i), graph.inputs()[i + 1]->type());
  out.insert(out.end(), arguments.begin() + 1, arguments.end());
  return c10::FunctionSchema(whole.name(), whole.overload_name(), std::move(out),
                             {c10::Argument("", graph.outputs()[0]->type())});
}

}  // namespace

std::vector<CarriedKind> kinds_of(const std::vector<Value*>& carried) {
  std::vector<CarriedKind> out;
  for (const Value* value : carried) {
    for (const auto& leaf : graph::leaves_of(value->type())) out.push_back(kind_of(leaf));
  }
  return out;
}

StageCall replace_forward_by_stage(const FlatForward& flat, const StageRange& range, const StageNeeds& needs) {
  StageGraph stage(flat, range, needs);
  const auto graph = stage.build();
  auto& forward = torch::jit::toGraphFunction(flat.module.get_method("forward").function());
  auto schema = schema_of_stage(forward.getSchema(), *graph, stage.num_carried());
  graph::replace_graph(*forward.graph(), *graph);
  forward.setSchema(std::move(schema));
  StageCall call{kinds_of(needs.carried_in), {}, range.begin == 0, range.end == flat.nodes.size()};
  if (!call.is_last) call.carried_out = kinds_of(range.live_out);
  return call;
}

}  // namespace dslaunch::runtime::model::stages
