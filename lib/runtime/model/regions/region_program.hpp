// What a carved subgraph does for inputs of certain sizes and dtypes: regions, and single operators between them. On
// the thread that runs the model; a program that is made runs on any.
#pragma once
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/regions/region_function.hpp"

namespace dslaunch::runtime::model::regions {

class RegionProgram {
 public:
  // `inputs`: of the subgraph; their values do not matter, except for those that are not tensors. `offered`: by output,
  // as offered_outputs(); empty: none. `services`: null: not on a GPU. The failure says why no region can be made of
  // it.
  static Result<std::unique_ptr<RegionProgram>> make(const torch::jit::Graph& subgraph,
                                                     const std::vector<c10::IValue>& inputs,
                                                     const std::vector<bool>& offered = {},
                                                     const RegionServicesPtr& services = {});

  // The subgraph's outputs, for inputs of the same description.
  std::vector<c10::IValue> run(const std::vector<c10::IValue>& inputs) const;

  size_t num_regions() const { return num_regions_; }
  std::string describe() const;  // its regions, for logs

 private:
  using Slot = size_t;  // of a value in a run
  struct RegionStep {
    c10::intrusive_ptr<RegionPlan> plan;
  };
  struct OperatorStep {
    torch::jit::Operation operation;
  };
  struct ListStep {
    bool of_tensors = true;  // else of ints
  };
  struct Step {
    std::variant<RegionStep, OperatorStep, ListStep> what;
    std::vector<Slot> inputs, outputs;
  };

  friend class ProgramMaker;

  // The inputs have the first slots.
  std::vector<std::pair<Slot, c10::IValue>> constants_;  // what the operators compute from sizes alone as well
  size_t num_slots_ = 0, num_regions_ = 0;
  std::vector<Step> steps_;
  std::vector<Slot> outputs_;
};

}  // namespace dslaunch::runtime::model::regions
