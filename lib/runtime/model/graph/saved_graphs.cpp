#include "runtime/model/graph/saved_graphs.hpp"

#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::graph {

using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::Value;

void replace_graph(Graph& graph, Graph& by) {
  while (!graph.outputs().empty()) graph.eraseOutput(0);
  while (graph.nodes().begin() != graph.nodes().end()) (*graph.nodes().rbegin())->destroy();
  while (graph.inputs().size() > 1) graph.eraseInput(1);
  std::vector<Value*> inputs = graph.inputs().vec();
  for (size_t i = inputs.size(); i < by.inputs().size(); ++i) {
    inputs.push_back(graph.addInput()->copyMetadata(by.inputs()[i]));
  }
  for (Value* output : torch::jit::insertGraph(graph, by, inputs)) graph.registerOutput(output);
}

SavedGraphs::SavedGraphs(const torch::jit::Module& model) {
  for_every_function(model, [&](GraphFunction& function) {
    saved_.push_back({&function, function.graph()->copy(), function.getSchema()});
  });
}

void SavedGraphs::restore() const {
  for (const auto& [function, graph, schema] : saved_) {
    replace_graph(*function->graph(), *graph);
    function->setSchema(schema);
  }
}

}  // namespace dslaunch::runtime::model::graph
