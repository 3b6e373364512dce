// How much a step of a run may differ from the same step of its unsharded replica, given the dtypes in which gradients
// are computed and communicated; docs/verify.md has the table. Pure.
#pragma once
#include "config/job_config.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::verify {

// Bound for an element of the summed gradient: relative to the size of the element and its unit, relative to the sum of
// its parts' sizes, and absolute near the smallest numbers of the dtype.
struct GradientBound {
  double relative = 0, of_parts = 0, absolute = 0;
  bool splits_sums = false;  // tensor ranks: terms that cancel exactly in the replica may leave a rounding in the run
};

struct VerificationBounds {
  GradientBound gradient;  // `relative` also applies to loss and norm
  double rounding = 0;     // relative, of a value itself
  bool is_spread = false;  // an error in one gradient element may change any element of its parameter (Muon)
  bool has_norms = false;  // a step reads norms of whole parameters (Lamb, Muon)
};

// Throws UserError(65) for a run with quantized communication: it differs by design.
VerificationBounds bounds_of(const model::Model& model, const config::JobConfig& config,
                             const step::EngineOptions& engine, int num_ranks);

}  // namespace dslaunch::runtime::engine::verify
