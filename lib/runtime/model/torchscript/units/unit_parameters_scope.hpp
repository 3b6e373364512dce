// Holds a unit's parameters in its slots during a call: the constructor acquires them, the destructor clears the slots,
// also when the model throws. Only release() releases them: a release may communicate with other ranks, and after an
// error the pass is abandoned anyway. On the thread that runs the model.
#pragma once
#include "base/error.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model::units {

class UnitParametersScope {
 public:
  // Both must outlive this object.
  UnitParametersScope(UnitParameters& parameters, const BoundUnit& unit, UnitCall call)
      : parameters_(parameters), unit_(unit), values_(parameters.acquire(unit.unit, call)) {
    DSL_CHECK(values_.parameters.size() == unit.locations.size(), "a unit gets as many parameters as it has");
    DSL_CHECK(values_.frozen.empty() || values_.frozen.size() == unit.frozen_locations.size(),
              "a unit gets all of its frozen parameters or none");
  }
  ~UnitParametersScope() { unit_.clear_parameters(values_); }
  UnitParametersScope(const UnitParametersScope&) = delete;
  UnitParametersScope& operator=(const UnitParametersScope&) = delete;

  // A history may be attached to the values before set().
  UnitValues& values() { return values_; }
  void set() const { unit_.set_parameters(values_); }
  // The end of a call, not of its recomputation. If an output is itself a view of a parameter, the unit stays gathered.
  void release(const std::vector<at::Tensor>& outputs) {
    const bool is_view = shares_storage(values_.parameters, outputs) || shares_storage(values_.frozen, outputs);
    if (!is_view) parameters_.release(unit_.unit);
  }

 private:
  UnitParameters& parameters_;
  const BoundUnit& unit_;
  UnitValues values_;
};

}  // namespace dslaunch::runtime::model::units
