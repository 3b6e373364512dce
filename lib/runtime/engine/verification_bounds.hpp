// How far a step of a run may be from that of its unsharded replica, from the types in which gradients are computed and
// travel; docs/verify.md has the table. Pure.
#pragma once
#include "config/job_config.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

// Of an element of the summed gradient: relative to its own and its unit's size, relative to the sum of its parts'
// sizes, and absolute where the type ends.
struct GradientBound {
  double relative = 0, of_parts = 0, absolute = 0;
};

struct VerificationBounds {
  GradientBound gradient;  // `relative` is that of loss and norm, too
  double rounding = 0;     // relative, of a value itself
  bool is_spread = false;  // an error in one element of the gradient may move any element of its parameter (Muon)
};

// Throws UserError(65) for a run whose traffic is quantized: it differs by design.
VerificationBounds bounds_of(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine,
                             int num_ranks);

}  // namespace dslaunch::runtime
