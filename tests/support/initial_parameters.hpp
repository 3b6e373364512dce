// Unit parameters without sharding, for tests of the model alone: units get the values in the model's file.
#pragma once
#include <string>
#include <vector>

#include "runtime/model/interface/model.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::test {

// A test derives from it and takes the gradients. Any thread. The model must outlive it.
class InitialParameters : public runtime::UnitParameters {
 public:
  explicit InitialParameters(const runtime::model::Model& model) : model_(model) {}

  runtime::UnitValues acquire(int unit, runtime::UnitCall) override {
    runtime::UnitValues out;
    for (int p : parameters_of(unit)) out.parameters.push_back(model_.initial.value(p).variable_data());
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}

 protected:
  const std::vector<int>& parameters_of(int unit) const { return model_.facts.table.units[unit].parameters; }
  const std::string& name_of(int parameter) const { return model_.facts.table.parameters[parameter].name; }

 private:
  const runtime::model::Model& model_;
};

}  // namespace dslaunch::test
