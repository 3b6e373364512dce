// Interception of unit calls: the graph of a unit class's forward is replaced by one operator that receives `self` and
// runs the original graph, which the operator's node holds together with the units of that class. Around that run the
// unit's parameters are acquired and set into its slots. In backward, a hook on the nodes that produced the call's
// outputs acquires the parameters again, and a custom autograd node takes their gradients, all at once for each call.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/recomputation/recomputation.hpp"
#include "runtime/model/torchscript/token_dropping.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model {
class UnitObserver;
}

namespace dslaunch::runtime::model::torchscript {

class UnitInterception {
 public:
  UnitInterception();
  ~UnitInterception();  // the classes stay rewritten, and their instances run the original graphs again
  UnitInterception(const UnitInterception&) = delete;
  UnitInterception& operator=(const UnitInterception&) = delete;

  // Call before the first run of any graph. One object intercepts all units of a loaded model. From then on every call
  // of module.forward goes through call(unit).
  void intercept(const torch::jit::Module& module, units::BoundUnit unit);
  void set_unit_parameters(UnitParameters* parameters) { parameters_ = parameters; }
  void set_unit_observer(UnitObserver* observer) { observer_ = observer; }
  // From now on recomputes in backward the units for which `choose` (by unit) returns a description.
  void recompute(const RecomputationOptions& options, recomputation::InputRanks ranks,
                 const std::function<std::optional<recomputation::RecomputedUnit>(int)>& choose);
  // Units that it applies to run on a part of their positions.
  void set_token_dropping(std::unique_ptr<TokenDropping> dropping) { dropping_ = std::move(dropping); }
  TokenDropping* token_dropping() const { return dropping_.get(); }
  // Runs `body` on `arguments` with the unit's parameters in their slots and returns its result. An argument that
  // `body` changes in place counts as an output. `recomputed`: not null if the unit is recomputed.
  c10::IValue call(const units::BoundUnit& unit, const torch::jit::Stack& arguments,
                   const recomputation::UnitBody& body,
                   const recomputation::RecomputedUnit* recomputed = nullptr) const;
  // The same as call(), for use inside an operator of a graph.
  c10::IValue call_in_graph(const units::BoundUnit& unit, const torch::jit::Stack& arguments,
                            const recomputation::UnitBody& body, const recomputation::RecomputedUnit* recomputed) const;
  // TorchScript turns exceptions thrown inside a graph into errors of its own. Throws the original error of a unit
  // call, if it was a dslaunch error, and clears it.
  void throw_failure();
  std::string take_recomputation_profile() { return recomputation_ ? recomputation_->take_profile() : std::string(); }

  struct UnitClass;  // of the units: its original forward and its instances

 private:
  c10::IValue observed(int unit, const torch::jit::Stack& arguments, const recomputation::UnitBody& body) const;

  UnitParameters* parameters_ = nullptr;
  UnitObserver* observer_ = nullptr;
  std::vector<c10::intrusive_ptr<UnitClass>> classes_;
  std::unique_ptr<TokenDropping> dropping_;  // null: all units get all positions
  std::unique_ptr<recomputation::Recomputation> recomputation_;
  mutable std::exception_ptr failure_;  // the first failure since throw_failure()
};

}  // namespace dslaunch::runtime::model::torchscript
