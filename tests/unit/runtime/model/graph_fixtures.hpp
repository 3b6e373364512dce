// Models whose forward is written as TorchScript or as a graph, and what runs in them.
#pragma once
#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/script.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/torchscript/graph_passes.hpp"

namespace dslaunch::test {

// `graph`: of inputs without self, and with one output; forward takes a tensor `x` and returns a tensor.
inline torch::jit::Module module_of_graph(const std::string& graph) {
  torch::jit::Module model("Net");
  model.define("def forward(self, x):\n  return x\n");
  const auto forward = model.get_method("forward").graph();
  torch::jit::Graph parsed;
  torch::jit::parseIR(graph, &parsed);
  forward->eraseOutput(0);
  for (auto* output : torch::jit::insertGraph(*forward, parsed, {forward->inputs()[1]})) {
    forward->registerOutput(output);
  }
  return model;
}

inline std::map<std::string, int> kinds_in_forward(const torch::jit::Module& model) {
  std::map<std::string, int> out;
  for (const auto* node : model.get_method("forward").graph()->nodes()) out[node->kind().toQualString()] += 1;
  return out;
}

inline void run_all_passes(const torch::jit::Module& model, const config::Kernels& kernels = {}) {
  using namespace runtime::model::passes;
  PassContext context{.module = model, .options = {kernels}};
  for (const auto needs : {PassNeeds::kGraphs, PassNeeds::kDevice}) {
    run_passes(runtime::model::torchscript::graph_passes(), needs, PassTarget::kModel, context);
  }
}

// Counts calls of operators on this thread while it lives, and keeps the arguments of attention.
class OperatorCalls {
 public:
  OperatorCalls() {
    current() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                           current()->add(call);
                                           return std::unique_ptr<at::ObserverContext>();
                                         })
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCalls() { at::removeCallback(handle_); }
  OperatorCalls(const OperatorCalls&) = delete;
  OperatorCalls& operator=(const OperatorCalls&) = delete;

  int count(const std::string& name) const { return counts_.count(name) ? counts_.at(name) : 0; }
  const std::vector<std::vector<c10::IValue>>& attention() const { return attention_; }

 private:
  static OperatorCalls*& current() {
    static thread_local OperatorCalls* calls = nullptr;
    return calls;
  }
  void add(const at::RecordFunction& call) {
    counts_[call.name()] += 1;
    if (std::string(call.name()) != "aten::scaled_dot_product_attention") return;
    attention_.emplace_back(call.inputs().begin(), call.inputs().end());
  }

  std::map<std::string, int> counts_;
  std::vector<std::vector<c10::IValue>> attention_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace dslaunch::test
