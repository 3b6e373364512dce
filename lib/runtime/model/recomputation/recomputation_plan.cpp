#include "runtime/model/recomputation/recomputation_plan.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/format.hpp"
#include "base/result.hpp"
#include "runtime/model/graph/aliases.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

using torch::jit::Module;

Result<> check_recomputable(const graph::ForwardEffects& effects) {
  if (!effects.is_analyzable) return Failure{"it calls code that cannot be analyzed (an interface, another thread)"};
  if (effects.changes_containers) return Failure{"it changes a list or dict argument"};
  if (effects.calls_autograd) return Failure{"it computes gradients itself"};
  return {};
}

}  // namespace

RecomputationPlan plan_recomputation(const std::vector<RecomputationCandidate>& candidates, const Module& model,
                                     bool calls_autograd, std::optional<int64_t> number_checkpoints,
                                     int64_t units_per_segment) {
  std::unordered_map<ObjectKey, graph::Object> modules;
  for (const auto& module : model.modules()) modules.emplace(module._ivalue().get(), module._ivalue());
  RecomputationPlan plan;
  std::string obstacles;
  for (const auto& candidate : candidates) {
    const auto effects = graph::scan_forward_effects(graph::flatten_resolved(candidate.module));
    RecomputedUnit unit{candidate.path, effects.changes_tensors, {}, static_cast<int>(plan.units.size())};
    Result<> recomputable = check_recomputable(effects);
    // Backward then reaches a block twice: for those gradients, and for all gradients.
    if (recomputable.ok() && calls_autograd) recomputable = Failure{"the model computes gradients in its forward"};
    for (const auto& [object, slot] : effects.written) {
      const auto module = modules.find(object);
      if (module == modules.end()) {
        recomputable = Failure{"it changes an object that is not a module"};
      } else {
        unit.state.push_back({module->second, slot});
      }
    }
    if (recomputable.ok()) {
      plan.units.emplace(candidate.unit, std::move(unit));
    } else {
      obstacles += fmt::format("; not '{}': {}", candidate.path, recomputable.error());
    }
  }
  const int64_t num_units = std::ssize(plan.units);
  const int64_t num_of_equal_size = (num_units + units_per_segment - 1) / units_per_segment;
  const int64_t num_segments = std::min(number_checkpoints.value_or(num_of_equal_size), num_units);
  for (auto& [number, unit] : plan.units) {
    unit.segment = static_cast<int>(number_checkpoints ? unit.position * num_segments / num_units
                                                       : unit.position / units_per_segment);
  }
  const std::string segments = num_segments < num_units ? fmt::format(", in {} groups", num_segments) : "";
  plan.summary =
      candidates.empty()
          ? "activation_checkpointing has no effect: the model's units are single layers; name blocks in \"units\""
          : fmt::format("activation_checkpointing: {} of {} blocks are recomputed in backward{}{}", plan.units.size(),
                        candidates.size(), segments, obstacles);
  return plan;
}

}  // namespace dslaunch::runtime::model::recomputation
