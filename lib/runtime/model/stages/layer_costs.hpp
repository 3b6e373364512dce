// What the partition methods balance. Pure.
#pragma once
#include <string>
#include <vector>

#include "runtime/model/interface/stage_plan.hpp"

namespace dslaunch::runtime::model::stages {

// Sets PlannedLayer::cost of all layers and returns the method's name. Adds to `notes` what stands in for measured
// times. Throws UserError(65) for an unknown method, and for a type that no layer has.
std::string set_layer_costs(std::vector<PlannedLayer>& layers, const StageOptions& options, int num_stages,
                            std::vector<std::string>& notes);

}  // namespace dslaunch::runtime::model::stages
