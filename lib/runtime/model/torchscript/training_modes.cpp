#include "runtime/model/torchscript/training_modes.hpp"

#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {

TrainingModes find_training_modes(const torch::jit::Module& model) {
  TrainingModes out;
  std::vector<std::string> in_eval;
  bool any_trains = false;
  for (const auto& module : model.named_modules()) {
    if (!module.value.hasattr("training")) continue;
    any_trains |= module.value.is_training();
    if (module.value.is_training()) continue;
    out.frozen_in_eval.push_back(module.value);
    const bool has_own = module.value.buffers(/*recurse=*/false).size() > 0 || module.value.children().size() == 0;
    if (has_own) in_eval.push_back(module.name);
  }
  if (!any_trains) out.frozen_in_eval.clear();
  if (!out.frozen_in_eval.empty() && !in_eval.empty()) {
    out.notes.push_back(fmt::format("kept in eval mode, as saved: {}", fmt::join(in_eval, ", ")));
  }
  return out;
}

std::vector<std::string> describe_traced_modes(const rewrites::TracedModes& modes) {
  std::vector<std::string> out;
  add_note(out, modes.dropout_off,
           "traced in eval mode, so their dropout is lost: {}; trace the model in train mode to train with dropout");
  add_note(out, modes.statistics_off,
           "traced in eval mode, so they normalise by their saved statistics: {}; trace the model in train mode to "
           "train with batch statistics");
  add_note(out, modes.unconditional_masks,
           "traced with random masks of their own (as in stochastic depth), so they drop in evaluation as well: {}; if "
           "in Python they drop in train mode only, script the model, or evaluate its Python module with the trained "
           "weights");
  add_note(out, modes.averages_fixed,
           "their momentum is 1 over the number of batches they have seen, which looks like a trace of momentum=None: "
           "{}; if so, the momentum stays at this number and their running statistics are not a cumulative average: "
           "script the model, or set a momentum");
  return out;
}

}  // namespace dslaunch::runtime::model::torchscript
