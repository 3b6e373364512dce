// Whole runs of the trainer on ranks that are threads of this process, and what they leave behind.
#pragma once
#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "config/report.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/engine/run/trainer.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/memory_store.hpp"
#include "support/mesh_threads.hpp"

namespace dslaunch::test {

using runtime::engine::run::TrainOutcome;
using runtime::engine::run::TrainRequest;

struct JobRun {
  std::string model;
  std::string run_dir;
  json config;
  int ranks = 1;
  // Further settings of a rank's request.
  std::function<void(TrainRequest& request)> prepare = [](TrainRequest&) {};

  JobRun with_changes(const json& changes) const {
    JobRun out = *this;
    out.config = with(config, changes);
    return out;
  }
};

inline std::string checkpoint_of(const JobRun& run, int64_t step) {
  return fmt::format("{}/checkpoints/step_{:08}", run.run_dir, step);
}

// The run continues from a checkpoint or a run directory.
inline JobRun resumed(JobRun run, const std::string& from) {
  run.prepare = [from](TrainRequest& request) { request.resume = from; };
  return run;
}

// Throws what a rank threw. All ranks end alike.
inline TrainOutcome run_job(const JobRun& job) {
  MemoryStore store;
  std::vector<TrainOutcome> outcomes(static_cast<size_t>(job.ranks));
  const auto num_stages = static_cast<int>(load_config(job.config, job.ranks).config.pipeline.stages);
  run_mesh(comm::make_mesh(job.ranks, num_stages, /*tensor=*/1), [&](const comm::Groups& groups) {
    const auto loaded = load_config(job.config, job.ranks);
    const int rank = groups.world.rank();
    const runtime::device::Device device(at::kCPU);
    TrainRequest request;
    request.device = &device;
    request.model_path = job.model;
    request.run_dir = job.run_dir;
    request.config = loaded.config;
    request.resolved_config = config::resolved_json(loaded);
    request.placement = {rank, job.ranks, rank, 0, 1, "this host"};
    request.quiet = true;
    request.hang_limit = std::chrono::seconds(20);
    job.prepare(request);
    outcomes[static_cast<size_t>(rank)] = runtime::engine::run::train(request, groups, store);
  });
  if (std::count(outcomes.begin(), outcomes.end(), outcomes.front()) != std::ssize(outcomes)) {
    throw std::logic_error("ranks end differently");
  }
  return outcomes.front();
}

inline std::vector<json> metrics_of(const std::string& run_dir) {
  std::vector<json> out;
  std::ifstream in(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

// Of a run that is carried out now.
inline std::vector<json> metrics_after(const JobRun& run) {
  run_job(run);
  return metrics_of(run.run_dir);
}

// Of Adafactor's means there is one for each row or column of the last two dims, of AdamW8bit's scales one for each
// block, of what 1-bit Lamb keeps of its warm-up one.
inline int64_t state_numel(const runtime::SavedTensor& tensor, const std::string& state) {
  const size_t dims = tensor.shape.size();
  if (state.ends_with("_scale")) return (tensor.numel() + 255) / 256;
  if (state == "lamb_coeff_freeze" || state == "last_factor" || state == "scaling_coeff") return 1;
  if (state == "row_var") return tensor.numel() / tensor.shape[dims - 1];
  return state == "col_var" ? tensor.numel() / tensor.shape[dims - 2] : tensor.numel();
}

// All states in a checkpoint, whole, in the types in which they are compared: fp32 for weights and moments.
inline States states_of(const std::string& checkpoint) {
  runtime::CheckpointReader reader(checkpoint);
  States out;
  for (const auto& tensor : reader.metadata().parameters) {
    for (const char* state : {"master",        "exp_avg",          "exp_avg_sq",       "momentum",
                              "square_avg",    "momentum_buffer",  "grad_avg",         "prev",
                              "step_size",     "row_var",          "col_var",          "variance",
                              "exp_avg_scale", "exp_avg_sq_scale", "exp_avg_sq_fresh", "lamb_coeff_freeze",
                              "last_factor",   "scaling_coeff",    "frozen",           "buffer"}) {
      if (!reader.has(tensor.name, state)) continue;
      at::Tensor values = at::empty({state_numel(tensor, state)}, at::kFloat);
      reader.read_into(tensor.name, state, 0, values);
      out[{tensor.name, state}] = values;
    }
  }
  return out;
}

}  // namespace dslaunch::test
