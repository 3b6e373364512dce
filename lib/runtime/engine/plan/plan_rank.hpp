// The memory of one rank of a job that need not exist: the same choices and the same arithmetic as those of the Engine,
// without allocating anything. Pure; any thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/memory_plan/rank_memory.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::engine::plan {

struct PlannedBuffer {
  std::string name;
  int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
};

// What a plan needs to know of a model, or of one stage of it.
struct PlannedModel {
  ParameterTable table;
  std::vector<PlannedBuffer> buffers;
  std::string fp8 = {};                                   // model::ModelFacts::fp8
  std::optional<model::PlacementReport> placements = {};  // empty: there is one tensor rank
  int64_t reduced_width = 0;  // features of the GEMMs whose results tensor ranks add up, summed

  // Of the parts that a rank holds.
  int64_t num_local() const;
  int64_t num_local_trained() const;
};
PlannedModel planned_model(const model::Model& model);

// The stages of a pipeline, one model each; without a pipeline the whole model.
struct PlannedStages {
  std::vector<PlannedModel> with_chunked_heads;
  // Where kernels.chunked_cross_entropy is off, as by default at stage 3: an untied head is a unit of its own there,
  // not a part of the root. Empty: the same.
  std::vector<PlannedModel> with_whole_logits = {};

  // As a run with this config loads them.
  const std::vector<PlannedModel>& of(const config::JobConfig& config) const {
    const bool is_chunked = config.kernels.chunked_cross_entropy || with_whole_logits.empty();
    return is_chunked ? with_chunked_heads : with_whole_logits;
  }
};

struct PlannedRank {
  at::Device device = at::kCPU;  // its type counts; it need not exist
  int rank = 0, num_data_ranks = 1;
  bool for_evaluation = false;
};

// The state of the rank and what one step needs beside its activations. On CPU ranks, tensors of the model that keep
// their type are pages of the model file, which is mapped. Throws UserError(65) as the engine does for a config and a
// model that do not belong together, 78 for a zero_hpz_partition_size that does not divide the ranks.
memory_plan::RankMemory plan_rank(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank);

// Of what stage 3 gathers for a forward, the share that stays gathered for the backward after it
// (stage3_max_reuse_distance); 0 where nothing is gathered.
double share_kept_gathered(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank);

}  // namespace dslaunch::runtime::engine::plan
