// What a micro batch will leave in memory for its backward, guessed from the shapes of parameters before anything has
// run. Pure; any thread.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::engine::plan {

// Each matrix is taken as a layer that keeps its input and its output for backward, and each normalisation weight as
// one that keeps its input, once for every position of the micro batch: within 6 % of what GPTs of 163M and 1.4B
// parameters take on a GPU. With recomputation each unit keeps its input, and the largest one runs again.
// With sequence parallelism a tensor rank keeps its share of the inputs of norms and units. Zero where that says
// nothing: no matrices, pipeline stages.
int64_t estimate_activations(const ParameterTable& table, const config::JobConfig& config, int64_t num_positions,
                             at::ScalarType compute_dtype);

// Positions of a micro batch for which layers compute by themselves: tokens of a text, rows of features, samples of
// pictures (their patches or pixels are the model's choice, so that activations are far more than the estimate).
int64_t count_positions(const setup::TrainingData& data, int64_t micro_batch);

}  // namespace dslaunch::runtime::engine::plan
