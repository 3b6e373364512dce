// The costs of layers that the partition methods balance: parameters, or times and bytes of a forward that measures
// them.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/interface/stage_plan.hpp"
#include "runtime/model/stages/flat_forward.hpp"

namespace dslaunch::runtime::model::stages {

struct LayerProbe {
  at::Device device = at::kCPU;
  at::ScalarType compute_dtype = at::kFloat;  // of floating-point inputs and parameters
  std::vector<ExampleInput> inputs;
  std::vector<size_t> layer_begins;        // positions; the first is 0
  std::vector<torch::jit::Value*> values;  // whose bytes are wanted: tensors and tuples of them
};

// All parameters share the memory of the largest and are zero; inputs are zero, too. The graphs have the device's
// constants. The module's tensors are replaced while it runs, and random numbers are drawn from a copy of the
// generator. An error: why it cannot run so.
Result<LayerMeasurement> probe_layers(const FlatForward& flat, const LayerProbe& probe);

// Pure.
//
// Sets PlannedLayer::cost of all layers and returns the method's name. Adds to `notes` what stands in for measured
// times. Throws UserError(65) for an unknown method, and for a type that no layer has.
std::string set_layer_costs(std::vector<PlannedLayer>& layers, const StageOptions& options, int num_stages,
                            std::vector<std::string>& notes);

}  // namespace dslaunch::runtime::model::stages
