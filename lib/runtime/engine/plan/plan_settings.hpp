// The stages of ZeRO and the choices of offload side by side, each planned as a job of its own. Pure but for the config
// file, which is read for each setting, so that the rules of the config decide what can be combined. One thread.
#pragma once
#include <string>
#include <vector>

#include "config/load.hpp"
#include "runtime/engine/plan/plan_rank.hpp"

namespace dslaunch::runtime::engine::plan {

struct JobSource {
  std::string config_path;  // empty: defaults
  std::vector<config::Override> overrides;
  int world_size = 1;
};

struct PlannedSetting {
  int stage = 0;
  config::OffloadDevice optimizer = config::OffloadDevice::kNone, parameters = config::OffloadDevice::kNone;
  bool is_own = false;  // what the config says
  config::JobConfig config;
  memory_plan::RankMemory memory;
  std::vector<config::Override> overrides = {};  // that make the job's config this one
};

// A setting has the memory of the stage that needs the most on its device.
// The own setting is always among the result; others only where the config accepts them. Throws UserError as the
// config's reader and plan_rank() do.
std::vector<PlannedSetting> plan_settings(const PlannedStages& stages, const JobSource& job, at::Device device);

// Without a model: the settings as such, `memory` empty.
std::vector<PlannedSetting> list_settings(const JobSource& job);

// The config of a job, with all errors thrown. Without init.from: sizes do not depend on values, so weights need not be
// here yet.
config::LoadResult load_job(const JobSource& job);

int ranks_of_model(const config::JobConfig& config);

memory_plan::RankMemory plan_largest_stage(const std::vector<PlannedModel>& stages, const config::JobConfig& config,
                                           at::Device device, int num_data_ranks);

}  // namespace dslaunch::runtime::engine::plan
