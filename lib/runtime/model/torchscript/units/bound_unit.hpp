// A unit and the slots that hold its parameters.
#pragma once
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model::units {

struct BoundUnit {
  using Locations = std::vector<std::vector<ParameterLocation>>;

  int unit = 0;
  std::string name;            // module path; "" is the root
  Locations locations;         // locations[i]: all slots that hold its i-th parameter (several when tied)
  Locations frozen_locations;  // the same for UnitInfo::frozen
  // Slots inside the unit that hold parameters of another unit, the root (tied to a slot outside this unit, or read
  // from outside it); set while the root runs.
  Locations external;
  std::vector<ParameterLocation> state;  // tensors other than parameters that its modules hold

  bool has_parameters() const { return !locations.empty() || !frozen_locations.empty(); }
  std::vector<at::Tensor> external_values() const {
    std::vector<at::Tensor> out;
    for (const auto& held : external) out.push_back(held.front().get());
    return out;
  }

  void set_parameters(const UnitValues& values) const { put(values, /*present=*/true); }
  // No code reads a stale view afterwards. Frozen parameters that stay in the model are kept.
  void clear_parameters(const UnitValues& values) const { put(values, /*present=*/false); }

 private:
  void put(const UnitValues& values, bool present) const {
    for (size_t i = 0; i < locations.size(); ++i) put(locations[i], values.parameters[i], present);
    for (size_t i = 0; i < values.frozen.size(); ++i) {
      if (values.frozen[i].defined()) put(frozen_locations[i], values.frozen[i], present);
    }
  }
  static void put(const std::vector<ParameterLocation>& locations, const at::Tensor& value, bool present) {
    for (const auto& location : locations) location.set(present ? value : at::Tensor());
  }
};

// Holds a unit's parameters in its slots during a call: the constructor acquires them, the destructor clears the slots,
// also when the model throws. Only release() releases them: a release may communicate with other ranks, and after an
// error the pass is abandoned anyway. On the thread that runs the model.
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
