// The graphs of a model's functions at one time, to put them back after passes have changed them. On the thread that
// loads the model, before any graph runs.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <vector>

namespace dslaunch::runtime::model::graph {

// Gives `graph` the contents of `by`; its first input, self, stays.
void replace_graph(torch::jit::Graph& graph, torch::jit::Graph& by);

class SavedGraphs {
 public:
  // Of all methods, and of the functions that they call.
  explicit SavedGraphs(const torch::jit::Module& model);
  void restore() const;

 private:
  struct Saved {
    torch::jit::GraphFunction* function;
    std::shared_ptr<torch::jit::Graph> graph;  // a copy
    c10::FunctionSchema schema;
  };

  std::vector<Saved> saved_;
};

}  // namespace dslaunch::runtime::model::graph
