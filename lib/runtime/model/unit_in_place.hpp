// A unit's parameters in its places for the time of a call, also when the model throws: asked for when it is made,
// given back when it goes. On the thread that runs the model.
#pragma once
#include "base/error.hpp"
#include "runtime/model/bound_unit.hpp"
#include "runtime/model/gather_node.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

class UnitInPlace {
 public:
  // Both must outlive this object.
  UnitInPlace(UnitParameters& parameters, const BoundUnit& unit, UnitCall call)
      : parameters_(parameters), unit_(unit), call_(call), values_(parameters.acquire(unit.unit, call)) {
    DSL_CHECK(values_.parameters.size() == unit.places.size(), "a unit gets as many parameters as it has");
    DSL_CHECK(values_.frozen.empty() || values_.frozen.size() == unit.frozen_places.size(),
              "a unit gets all of its frozen parameters or none");
  }
  ~UnitInPlace() {
    unit_.clear_parameters(values_);
    if (!stays_ && call_ != UnitCall::kAgain) parameters_.release(unit_.unit);
  }
  UnitInPlace(const UnitInPlace&) = delete;
  UnitInPlace& operator=(const UnitInPlace&) = delete;

  // May be given a history before they are set.
  UnitValues& values() { return values_; }
  void set() const { unit_.set_parameters(values_); }
  // An output that is itself a view of a parameter: the unit stays where it is.
  void stay_for(const std::vector<at::Tensor>& outputs) {
    stays_ = shares_storage(values_.parameters, outputs) || shares_storage(values_.frozen, outputs);
  }

 private:
  UnitParameters& parameters_;
  const BoundUnit& unit_;
  const UnitCall call_;
  UnitValues values_;
  bool stays_ = false;
};

}  // namespace dslaunch::runtime
