// A unit and where its parameters go.
#pragma once
#include <vector>

#include "runtime/model/parameter_place.hpp"

namespace dslaunch::runtime {

struct BoundUnit {
  int unit = 0;
  std::vector<std::vector<ParameterPlace>> places;  // places[i]: all that hold its i-th parameter (several when tied)
  // The places inside the unit of trainable parameters that belong to another one, the root (tied to something outside
  // it, or read from there); set while that one runs.
  std::vector<std::vector<ParameterPlace>> borrowed;

  // Empty `values` clears the places: nobody reads a stale view.
  void set_parameters(const std::vector<at::Tensor>& values) const {
    for (size_t i = 0; i < places.size(); ++i) {
      for (const auto& place : places[i]) place.set(values.empty() ? at::Tensor() : values[i]);
    }
  }
};

}  // namespace dslaunch::runtime
