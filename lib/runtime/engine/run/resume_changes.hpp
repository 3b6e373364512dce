// What a run that resumes does differently from the run that saved the checkpoint: parameters whose state starts or
// ends, and settings of which training depends. Pure.
#pragma once
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime::engine::run {

struct ResumeChange {
  bool is_warning = false;  // the trajectory may differ in a way that the user did not ask for
  std::string text;         // one line
};

// `now`: what this run would save before its first step. `takes_moments`: of the checkpoint. A config that this version
// cannot read, as an imported checkpoint may have, is not compared.
std::vector<ResumeChange> describe_changes(const CheckpointMetadata& saved, const CheckpointMetadata& now,
                                           bool takes_moments);

}  // namespace dslaunch::runtime::engine::run
