#include "runtime/model/torchscript/model_analysis.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/analysis/dropped_max_norm.hpp"
#include "runtime/model/graph/forward_effects.hpp"
#include "runtime/model/interface/initial_values.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/model/torchscript/module_notes.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

std::set<std::string> find_mutable_parameters(const torch::jit::Module& model, const graph::ForwardEffects& effects,
                                              const std::string& path) {
  std::set<std::string> out;
  for (const auto& held : file::find_parameters(model)) {
    const bool is_written =
        std::any_of(held.locations.begin(), held.locations.end(), [&](const ParameterLocation& location) {
          return effects.written.count({location.object.get(), location.slot}) > 0;
        });
    if (is_written && held.value.requires_grad()) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("forward of '{}' writes to parameter '{}' (in place, or by assignment, or as an "
                                  "embedding with max_norm), which the master weights would not reflect. Make it a "
                                  "buffer, or leave the change to the optimizer",
                                  path, held.name));
    }
    if (is_written && !is_stride_zero(held.value)) out.insert(held.name);
  }
  return out;
}

}  // namespace

ModelAnalysis analyze_model(const torch::jit::Module& model, const std::string& path) {
  ModelAnalysis out;
  add_note(out.notes, analysis::find_dropped_max_norm(model),
           "scripting drops max_norm of embeddings, so their rows are not renormalised: {}");
  const auto flat = graph::flatten_resolved(model);
  out.index_use = analysis::scan_index_use(flat);
  const auto effects = graph::scan_forward_effects(flat);
  out.calls_autograd = effects.calls_autograd;
  out.mutable_parameters = find_mutable_parameters(model, effects, path);
  out.host_state = analysis::find_host_state(model, effects);
  if (!out.host_state.changed.empty()) {
    out.notes.push_back(
        fmt::format("forward changes attributes that are not tensors, so checkpoints do not store them and evaluations "
                    "do not restore them: {}. Use buffers for state that matters",
                    fmt::join(out.host_state.changed, ", ")));
  }
  return out;
}

}  // namespace dslaunch::runtime::model::torchscript
