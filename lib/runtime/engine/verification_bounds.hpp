// How far a step of a run may be from that of its unsharded replica, from the types in which gradients are computed and
// travel; docs/verify.md has the table. Pure.
#pragma once
#include "config/job_config.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

struct VerificationBounds {
  double gradient = 0;         // relative, and of loss and norm
  double rounding = 0;         // relative, of a value itself
  double moment_rounding = 0;  // the same, of a moment
};

// Throws UserError(65) for a run whose traffic is quantized: it differs by design.
VerificationBounds bounds_of(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine);

}  // namespace dslaunch::runtime
