// Why a step's loss or gradient is not finite, found by running the step again with checks: which micro batch of which
// rank, and there the first thing that was not finite: a value of the data, a parameter, what a unit was given or gave
// back, the loss, the gradient of a parameter. Costs nothing until it is needed: the samples are read again and the
// random numbers are those that the step began with. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/training_data.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

// Where a step began.
struct StepStart {
  int64_t step = 0;
  DataPosition position;
  at::Tensor random_state;
};

struct FailedRun {
  ModelSource& model;
  Engine& engine;
  const TrainingData& data;
  const config::JobConfig& config;
  comm::Communicator& world;
  at::Device device;
};

// One sentence or two, the same on all ranks: "rank 1, micro batch 0: array 'y' of the data, sample 80, ... is nan".
// Collective. `loss_is_finite`: then the gradient is to blame. Says so when nothing is found.
std::string diagnose(const FailedRun& run, const StepStart& start, bool loss_is_finite);

}  // namespace dslaunch::runtime
