#include "runtime/model/passes/graph_pass.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
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

constexpr std::pair<Form, std::string_view> kForms[] = {
    {Form::kAsInFile, "the graphs as the file has them"},
    {Form::kPlainGemms, "PyTorch's GEMMs"},
    {Form::kPlainOperators, "operators outside regions"},
    {Form::kInlinedLosses, "inlined losses"},
    {Form::kOwnLosses, "our losses"},
    {Form::kOwnGemms, "our GEMMs"},
    {Form::kPlacedConstants, "placed constants"},
    {Form::kFittedConstants, "fitted constants"},
    {Form::kNumbers, "numbers"},
    {Form::kKeptConstants, "kept constants"},
    {Form::kRegions, "regions"},
    {Form::kCutGemms, "GEMMs with cuts"},
    {Form::kResidualGradients, "residual gradients"},
};
constexpr Forms kOfFile = Form::kAsInFile | Form::kPlainGemms | Form::kPlainOperators;

}  // namespace

std::string fault_of_order(const std::vector<GraphPass>& passes) {
  std::map<Form, std::string_view> ended_by;
  Forms present = kOfFile;
  PassNeeds needs = PassNeeds::kGraphs;
  for (const auto& pass : passes) {
    if (pass.needs < needs)
      return fmt::format("{} comes before units are intercepted, and stands behind that", pass.name);
    needs = pass.needs;
    for (const auto& [form, what] : kForms) {
      if (!pass.reads.has(form) || present.has(form)) continue;
      const auto ended = ended_by.find(form);
      return ended == ended_by.end() ? fmt::format("{} reads {}, which no pass before it makes", pass.name, what)
                                     : fmt::format("{} reads {}, which {} has ended", pass.name, what, ended->second);
    }
    present = present | pass.makes;
    for (const auto& [form, what] : kForms) {
      if (!(pass.ends | Form::kAsInFile).has(form) || !present.has(form)) continue;
      present.bits &= ~static_cast<unsigned>(form);
      ended_by[form] = pass.name;
    }
  }
  return {};
}

void run_passes(const std::vector<GraphPass>& passes, PassNeeds needs, PassTarget target, PassContext& context) {
  const std::string fault = fault_of_order(passes);
  DSL_CHECK(fault.empty(), "graph passes: " + fault);
  for (const auto& pass : passes) {
    const bool is_wanted = pass.key == nullptr || context.options.kernels.*pass.key;
    const bool fits = target == PassTarget::kModel || pass.target == PassTarget::kModelAndLoss;
    if (pass.needs != needs || !is_wanted || !fits) continue;
    std::visit([&](const auto& rewrite) { run(rewrite, pass, context); }, pass.rewrite);
  }
}

}  // namespace dslaunch::runtime::model::passes
