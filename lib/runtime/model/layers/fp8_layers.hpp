// Which linear layers of a model compute in fp8 (docs/precision.md). On the thread that loads the model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

#include "config/job_config.hpp"

namespace dslaunch::runtime::model::layers {

// Gives the GEMMs with a parameter the recipe, in all graphs of the model: those that are wide enough, and whose output
// reaches another one (a head's does not). Returns which layers compute in fp8 and which in bf16, with the reason, as a
// sentence for the user. `keeps_weights`: GemmOptions::keeps_fp8_weights. Throws UserError(65) if none does.
std::string use_fp8(const torch::jit::Module& model, config::Fp8Recipe recipe, bool keeps_weights);

}  // namespace dslaunch::runtime::model::layers
