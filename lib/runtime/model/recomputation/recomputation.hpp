// Recomputation (activation checkpointing): a unit's forward runs without saving the activations that backward needs.
// In backward the unit is all-gathered again, its graph runs again on the saved inputs, with the random numbers and the
// state (BatchNorm's statistics) of the first forward, and that recomputation is differentiated immediately.
//
// Units of one segment are recomputed together: of these calls only the first saves its inputs. When backward reaches
// the last one, the calls before it run again, each on the outputs of the one before, and all of them keep their
// history until backward has come to them. A call whose input is not an output of the segment's call before it, as it
// was returned, saves that input after all.
//
// First forwards run on the thread that runs the model, recomputations on autograd's.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/recomputation/input_store.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model::recomputation {

// What a recomputation must know about a unit besides its parameters.
struct RecomputedUnit {
  std::string name;
  bool copies_arguments = false;         // forward may change its arguments in place
  std::vector<ParameterLocation> state;  // attributes that the forward writes
  int position = 0;                      // among the recomputed units, in order of use
  int segment = 0;                       // units of one segment are recomputed together
};

// Runs the unit's own graph on its arguments (without self); lives until backward has finished.
using UnitBody = std::function<c10::IValue(torch::jit::Stack)>;

class PassTimes;
struct LastCall;

class Recomputation {
 public:
  // `ranks`: of options.partition_activations, those that run the same units on the same inputs.
  explicit Recomputation(RecomputationOptions options, InputRanks ranks = {});
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  // One call with gradients on. `unit`, `recomputed` and `parameters` must outlive its backward. Backward throws
  // UserError(65) when a saved input was changed in place or the recomputation takes another path than the first
  // forward.
  c10::IValue call(const units::BoundUnit& unit, const RecomputedUnit& recomputed, UnitParameters& parameters,
                   const torch::jit::Stack& arguments, UnitBody body);

  // With `profile`: the times of both passes since the last call of this function, as one line; else empty.
  std::string take_profile();

 private:
  RecomputationOptions options_;
  std::shared_ptr<InputStore> store_;
  std::shared_ptr<PassTimes> times_;
  std::unique_ptr<LastCall> last_;  // of the thread that runs the model
};

}  // namespace dslaunch::runtime::model::recomputation
