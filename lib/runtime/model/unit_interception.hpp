// The interception of unit calls: the graph of a unit class's forward is replaced by one operator that receives `self`;
// the original graph is kept aside and run by it. Around the run the unit's parameters are acquired and set into its
// slots. In backward a hook on the nodes that made the call's outputs asks for the parameters again, and a node of our
// own takes their gradients, all at once for each call.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/bound_unit.hpp"
#include "runtime/model/recomputation.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

class UnitObserver;

// The graph that ran as this class's forward before it was intercepted; null: it never was.
std::shared_ptr<torch::jit::Graph> original_forward(const c10::ClassType& type);

class UnitInterception {
 public:
  UnitInterception() = default;
  ~UnitInterception();  // forgets the modules; their classes stay rewritten
  UnitInterception(const UnitInterception&) = delete;
  UnitInterception& operator=(const UnitInterception&) = delete;

  // Before the first run of any graph. Every call of module.forward goes through call(unit) from now on.
  void intercept(const torch::jit::Module& module, BoundUnit unit);
  void set_unit_parameters(UnitParameters* parameters) { parameters_ = parameters; }
  void set_unit_observer(UnitObserver* observer) { observer_ = observer; }
  // From now on the units for which `choose` (by unit) says how are recomputed in backward.
  void recompute(const RecomputationOptions& options, const std::function<std::optional<RecomputedUnit>(int)>& choose);
  // Runs `body` on `arguments` with the unit's parameters in their places and returns what it returned. An argument
  // that it changes in place counts as an output. `recomputed`: not null if the unit is recomputed.
  c10::IValue call(const BoundUnit& unit, const torch::jit::Stack& arguments, const UnitBody& body,
                   const RecomputedUnit* recomputed = nullptr) const;
  // The same as an operator of a graph.
  c10::IValue call_in_graph(const BoundUnit& unit, const torch::jit::Stack& arguments, const UnitBody& body,
                            const RecomputedUnit* recomputed) const;
  // TorchScript turns what is thrown inside a graph into an error of its own. Throws what a call of a unit threw, if it
  // was an error of ours, and forgets it.
  void throw_failure();
  std::string take_recomputation_profile() { return recomputation_ ? recomputation_->take_profile() : std::string(); }

 private:
  c10::IValue observed(int unit, const torch::jit::Stack& arguments, const UnitBody& body) const;

  UnitParameters* parameters_ = nullptr;
  UnitObserver* observer_ = nullptr;
  std::vector<ObjectKey> intercepted_;
  std::unique_ptr<Recomputation> recomputation_;
  mutable std::exception_ptr failure_;  // the first since throw_failure()
};

}  // namespace dslaunch::runtime
