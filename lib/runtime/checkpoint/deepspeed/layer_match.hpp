// Which modules of a model the layers of a pipeline are, when their numbers are not the names of the modules. Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime::deepspeed {

using LayerNames = std::map<int, std::string>;  // the module's name by the layer's number

// A layer can be a module that has the same parameters (names inside it and shapes), and layers with the same
// parameters are such modules in their order. `saved` has the names LAYER.NAME. Empty unless every layer with
// parameters is a module and these hold all trained parameters of the model.
std::optional<LayerNames> match_layers(const std::vector<SavedTensor>& saved, const std::vector<SavedTensor>& model);

// "3.norm.weight" under its module's name; unchanged if the layer is not a module.
std::string rename_layer(const LayerNames& layers, const std::string& name);

}  // namespace dslaunch::runtime::deepspeed
