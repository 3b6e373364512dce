// Finds out why a step's loss or gradient is not finite by running the step again with checks: which micro batch of
// which rank, of a pipeline on which stage, and the first value there that is not finite: in the data, a parameter, an
// input or output of a unit, the loss, or the gradient of a parameter. Costs nothing until it is needed: the samples
// are read again, and the random numbers are those with which the step began. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime::engine::diagnosis {

// The state at the beginning of a step.
struct StepStart {
  int64_t step = 0;
  DataPosition position;
  at::Tensor random_state;
};

struct FailedRun {
  model::Model& model;
  step::Engine& engine;
  const setup::TrainingData& data;
  const config::JobConfig& config;
  const comm::Groups& groups;
  at::Device device;
};

struct Diagnosis {
  std::string cause;   // one or two sentences
  std::string advice;  // one sentence
};

// The same on all ranks: "rank 1, micro batch 0: array 'y' of the data, sample 80, ... is nan",
// of a pipeline "rank 1 (stage 1), ...". Its stages compute one micro batch after the other. Collective.
// `loss_is_finite`: the gradient is the cause. If nothing is found, the text says so.
Diagnosis diagnose(const FailedRun& run, const StepStart& start, bool loss_is_finite);

}  // namespace dslaunch::runtime::engine::diagnosis
