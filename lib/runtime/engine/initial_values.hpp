// What the model file and the config say before the first step: starting values, what can be trained.
#pragma once
#include <optional>
#include <string>

#include "config/job_config.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/sharding/flat_parameters.hpp"

namespace dslaunch::runtime {

// Throws UserError(65) for a model without trainable parameters (frozen, or none at all), and for one that was made for
// inference (quantized, say), whose parameters would get wrong gradients.
void require_trainable(const ModelSource& model, const std::string& path);

// Elements from the file, or from "init" for a model that was exported empty; UserError(65) when that is missing.
// `model` must outlive the result.
FlatParameters::ReadElements initial_values(const ModelSource& model, std::optional<config::Init> init,
                                            const std::string& path);

// What the user should know of "init", a line; empty: nothing.
std::string note_on_init(const ModelSource& model, const std::optional<config::Init>& init, const std::string& path);

}  // namespace dslaunch::runtime
