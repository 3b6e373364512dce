#include "runtime/model/passes/graph_pass.hpp"

#include "base/log.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::passes {
namespace {

void run(const NodeRewrite& rewrite, const GraphPass& pass, PassContext& context) {
  int count = 0;
  graph::for_every_node(context.module, [&](torch::jit::Node* node) {
    if (graph::match(node, rewrite.pattern).empty()) return;
    rewrite.rewrite(node);
    count += 1;
  });
  if (count > 0) log::debug("graph pass {}: {} nodes", pass.name, count);
}

void run(ModuleRewrite rewrite, const GraphPass&, PassContext& context) {
  rewrite(context);
}

}  // namespace

void run_passes(const std::vector<GraphPass>& passes, PassNeeds needs, PassTarget target, PassContext& context) {
  for (const auto& pass : passes) {
    const bool is_wanted = pass.key == nullptr || context.options.kernels.*pass.key;
    const bool fits = target == PassTarget::kModel || pass.target == PassTarget::kModelAndLoss;
    if (pass.needs != needs || !is_wanted || !fits) continue;
    std::visit([&](const auto& rewrite) { run(rewrite, pass, context); }, pass.rewrite);
  }
}

}  // namespace dslaunch::runtime::model::passes
