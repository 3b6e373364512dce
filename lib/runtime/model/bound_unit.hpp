// A unit and where its parameters go.
#pragma once
#include <string>
#include <vector>

#include "runtime/state/parameter_place.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

struct BoundUnit {
  using Places = std::vector<std::vector<ParameterPlace>>;

  int unit = 0;
  std::string name;      // module path; "" is the root
  Places places;         // places[i]: all that hold its i-th parameter (several when tied)
  Places frozen_places;  // the same of UnitInfo::frozen
  // The places inside the unit of parameters that belong to another one, the root (tied to something outside it, or
  // read from there); set while that one runs.
  Places borrowed;
  std::vector<ParameterPlace> state;  // tensors that its modules hold besides parameters

  bool has_parameters() const { return !places.empty() || !frozen_places.empty(); }
  std::vector<at::Tensor> borrowed_values() const {
    std::vector<at::Tensor> out;
    for (const auto& held : borrowed) out.push_back(held.front().get());
    return out;
  }

  void set_parameters(const UnitValues& values) const { put(values, /*present=*/true); }
  // Nobody reads a stale view. Frozen parameters that rest in the model stay.
  void clear_parameters(const UnitValues& values) const { put(values, /*present=*/false); }

 private:
  void put(const UnitValues& values, bool present) const {
    for (size_t i = 0; i < places.size(); ++i) put(places[i], values.parameters[i], present);
    for (size_t i = 0; i < values.frozen.size(); ++i) {
      if (values.frozen[i].defined()) put(frozen_places[i], values.frozen[i], present);
    }
  }
  static void put(const std::vector<ParameterPlace>& places, const at::Tensor& value, bool present) {
    for (const auto& place : places) place.set(present ? value : at::Tensor());
  }
};

}  // namespace dslaunch::runtime
