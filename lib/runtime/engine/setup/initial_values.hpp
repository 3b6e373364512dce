// State before the first step, from the model file and the config: initial values, which parameters can be trained.
#pragma once
#include <optional>
#include <string>

#include "config/job_config.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/sharding/flat_parameters.hpp"

namespace dslaunch::runtime::engine::setup {

// Throws UserError(65) for a model without trainable parameters (all frozen, or none at all), and for a model exported
// for inference (quantized, for example), whose parameters would get wrong gradients.
void require_trainable(const model::ModelFacts& model, const std::string& path);

// Reads elements of this rank's parts of the parameters from the file, or from "init" for a model that was exported
// without values; UserError(65) when "init" is missing. `model` must outlive the result.
FlatParameters::ReadElements initial_values(const model::Model& model, std::optional<config::Init> init,
                                            const std::string& path);

// A one-line note about "init" for the user; empty: none.
std::string note_on_init(const model::Model& model, const std::optional<config::Init>& init, const std::string& path);

}  // namespace dslaunch::runtime::engine::setup
