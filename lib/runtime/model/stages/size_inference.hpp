// Sizes of carried tensors that follow from the model's inputs: `inputs_embeds.shape` is that of the ids it was looked
// up with. Such sizes are computed from stand-ins, tensors without storage that have the shape of the value, so that
// stages compute them for themselves.
#pragma once
#include "runtime/model/stages/flat_forward.hpp"
#include "runtime/model/stages/value_kinds.hpp"

namespace dslaunch::runtime::model::stages {

// Lets nodes that read a size read that of a stand-in, where one can be computed from values that every stage has.
// `kinds`: of `flat`, out of date if it returns true: nodes were added.
bool infer_sizes(FlatForward& flat, const ValueKinds& kinds);

}  // namespace dslaunch::runtime::model::stages
