// `dslaunch plan --suggest`: of all settings with the job's global batch, the one that fits with the least predicted
// step time. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/plan/plan_report.hpp"
#include "runtime/engine/plan/predict_step.hpp"

namespace dslaunch::runtime::engine::plan {

struct Candidate {
  PlannedSetting setting;   // with its micro batch, accumulation and recomputation; memory: of the largest stage
  int64_t activations = 0;  // bytes of the micro batches that this stage keeps at a time, at their most
  memory_plan::Peak peak;
  memory_plan::Fit fit = memory_plan::Fit::kUnknown;
  StepTimes times;
  int num_data_ranks = 1;
};

struct Suggestion {
  Candidate chosen;
  std::optional<Candidate> own;          // what the config says
  std::optional<Candidate> next_better;  // the slowest of those that would be faster and do not fit
  size_t num_candidates = 0;
};

struct SuggestInputs {
  std::map<int, PlannedStages> stages;  // by tensor ranks: those that are searched
  JobSource job;
  PlanReport report;  // capacity, ranks, device and, if known, the activations of the own setting; the rest is ignored
  Rates rates;        // file_bytes 0: nothing is suggested to rest in files
  int64_t positions_per_sample = 1;
};

// Searches tensor ranks, stages of ZeRO, offload, recomputation, and micro batch × accumulation. Activations are
// estimated from the shapes and, where those of the own setting are known, scaled to them. Throws UserError 69 when
// nothing fits.
Suggestion suggest(const SuggestInputs& inputs);

// The whole config of a candidate, as a job file.
std::string config_text(const Candidate& candidate, const JobSource& job);
std::string suggestion_text(const Suggestion& suggestion, const SuggestInputs& inputs, const std::string& written_to);
std::string suggestion_json(const Suggestion& suggestion, const SuggestInputs& inputs, const std::string& written_to);

}  // namespace dslaunch::runtime::engine::plan
