// The operator dslaunch::fused_region, which runs an extracted subgraph: by a program for each description of its
// inputs that it has seen, and as it was written where that does not work.
#pragma once
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/fusion/autograd_function.hpp"
#include "runtime/model/fusion/services.hpp"

namespace dslaunch::runtime::model::fusion {

// The failure where a program may have no regions but those of others.
inline constexpr char kOtherKernels[] = "its kernels would be others than those of earlier shapes";

// What an extracted subgraph does for inputs of certain sizes and dtypes: regions, and single operators between them.
// On the thread that runs the model; a program that is made runs on any.
class FusionProgram {
 public:
  // What the programs of a subgraph share. Where only the rows differ, as with the lengths of samples, their regions
  // are the same: they are derived and compiled once.
  struct Shared {
    FusionServicesPtr services = {};                                     // null: not on a GPU
    std::vector<bool> offered = {};                                      // by output, as offered_outputs(); empty: none
    std::map<std::string, c10::intrusive_ptr<RegionPlan>> regions = {};  // by what they do
    bool may_grow = true;                                                // else other regions are a failure
  };
  // `inputs`: of the subgraph; their values do not matter, except for those that are not tensors. The failure says why
  // no region can be made of it.
  static Result<std::unique_ptr<FusionProgram>> make(const torch::jit::Graph& subgraph,
                                                     const std::vector<c10::IValue>& inputs, Shared& shared);

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

inline constexpr char kFusedRegion[] = "dslaunch::fused_region";

// Of one group. A program for other rows, as with another length of the samples, takes a few KiB and about a
// millisecond. Where the number of columns differs, or a number that the operators compute from sizes, kernels are
// compiled, for tenths of a second each.
inline constexpr size_t kMaxShapesOfGroup = 1024, kMaxCompiledOfGroup = 64;

// A node that is not yet in its place. It has an output for each of the subgraph's.
torch::jit::Node* create_fused_region(torch::jit::Graph& graph, at::ArrayRef<torch::jit::Value*> inputs,
                                      std::shared_ptr<torch::jit::Graph> subgraph, const FusionServicesPtr& services);

}  // namespace dslaunch::runtime::model::fusion
