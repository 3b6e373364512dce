// Recomputation (activation checkpointing): a unit's forward runs without keeping what its backward will need; in
// backward the unit is gathered again, its graph runs a second time on the saved inputs, with the random numbers and
// the state (BatchNorm's statistics) of the first time, and that pass is differentiated on the spot.
//
// On the thread that runs the model; the second pass on autograd's.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/bound_unit.hpp"
#include "runtime/model/recomputation_options.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

// What of a unit a second pass must know besides its parameters.
struct RecomputedUnit {
  std::string name;
  bool copies_arguments = false;      // the forward may work in place on what it is given
  std::vector<ParameterPlace> state;  // attributes that the forward writes
};

// Runs the unit's own graph on its arguments (without self); lives until backward has passed.
using UnitBody = std::function<c10::IValue(torch::jit::Stack)>;

class InputStore;
class PassTimes;

class Recomputation {
 public:
  explicit Recomputation(RecomputationOptions options);
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  // One call with gradients on. `unit`, `recomputed` and `parameters` must outlive its backward. UserError(65) in
  // backward when a saved input was changed in place meanwhile or the second pass goes another way than the first.
  c10::IValue call(const BoundUnit& unit, const RecomputedUnit& recomputed, UnitParameters& parameters,
                   const torch::jit::Stack& arguments, UnitBody body);

  // With `profile`: what the passes since the last call took, as one line; else empty.
  std::string take_profile();

 private:
  RecomputationOptions options_;
  std::shared_ptr<InputStore> store_;
  std::shared_ptr<PassTimes> times_;
};

}  // namespace dslaunch::runtime
