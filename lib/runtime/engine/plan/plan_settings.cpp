#include "runtime/engine/plan/plan_settings.hpp"

#include <algorithm>
#include <string_view>

#include "config/enum_names.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using config::OffloadDevice;
using memory_plan::RankMemory;
using memory_plan::Tier;

struct Choice {
  int stage = 0;
  OffloadDevice optimizer = OffloadDevice::kNone, parameters = OffloadDevice::kNone;
  bool operator==(const Choice&) const = default;
};

// From the one that communicates least to the one that needs the least memory.
constexpr Choice kChoices[] = {
    {0},
    {1},
    {1, OffloadDevice::kHost},
    {2},
    {2, OffloadDevice::kHost},
    {3},
    {3, OffloadDevice::kHost},
    {3, OffloadDevice::kNone, OffloadDevice::kHost},
    {3, OffloadDevice::kHost, OffloadDevice::kHost},
    {3, OffloadDevice::kFile, OffloadDevice::kHost},
    {3, OffloadDevice::kFile, OffloadDevice::kFile},
};

Choice choice_of(const config::Zero& zero) {
  const bool offloads_parameters = zero.stage == 3;
  return {zero.stage, zero.offload_optimizer.device,
          offloads_parameters ? zero.offload_param.device : OffloadDevice::kNone};
}

std::string_view name_of(OffloadDevice device) {
  for (const auto& row : config::kOffloadDevices) {
    if (row.value == device) return row.text;
  }
  return {};
}

// What turns the config into one with the choice.
std::vector<config::Override> overrides_of(const Choice& choice, const config::Zero& own) {
  const std::string zero = "zero_optimization.", optimizer = zero + "offload_optimizer.",
                    param = zero + "offload_param.";
  std::vector<config::Override> out;
  const auto set = [&](const std::string& key, const std::string& value) { out.push_back({key, value, "plan"}); };
  set(zero + "stage", std::to_string(choice.stage));
  set(optimizer + "device", std::string(name_of(choice.optimizer)));
  set(param + "device", std::string(name_of(choice.parameters)));
  if (choice.stage < 3) set(optimizer + "ratio", "1");
  // A directory of no importance: nothing is written to it.
  if (choice.optimizer == OffloadDevice::kFile && own.offload_optimizer.nvme_path.empty())
    set(optimizer + "nvme_path", ".");
  if (choice.parameters == OffloadDevice::kFile && own.offload_param.nvme_path.empty()) set(param + "nvme_path", ".");
  return out;
}

PlannedSetting setting_of(const Choice& choice, config::JobConfig config, bool is_own) {
  return {choice.stage, choice.optimizer, choice.parameters, is_own, std::move(config), {}};
}

}  // namespace

config::LoadResult load_job(const JobSource& job) {
  auto loaded = config::load_file(job.config_path, job.overrides, {.world_size = job.world_size});
  config::throw_if_bad(loaded);
  if (loaded.config.init) loaded.config.init->from.clear();
  return loaded;
}

std::vector<PlannedSetting> list_settings(const JobSource& job) {
  const auto own = load_job(job);
  const Choice own_choice = choice_of(own.config.zero);
  std::vector<Choice> choices(std::begin(kChoices), std::end(kChoices));
  if (std::find(choices.begin(), choices.end(), own_choice) == choices.end()) {
    const auto later =
        std::find_if(choices.begin(), choices.end(), [&](const Choice& each) { return each.stage > own_choice.stage; });
    choices.insert(later, own_choice);
  }
  std::vector<PlannedSetting> out;
  for (const Choice& choice : choices) {
    if (choice == own_choice) {
      out.push_back(setting_of(choice, own.config, true));
      continue;
    }
    JobSource changed = job;
    auto overrides = overrides_of(choice, own.config.zero);
    changed.overrides.insert(changed.overrides.end(), overrides.begin(), overrides.end());
    auto loaded = config::load_file(changed.config_path, changed.overrides, {.world_size = changed.world_size});
    if (!loaded.ok()) continue;
    out.push_back(setting_of(choice, std::move(loaded.config), false));
    out.back().overrides = std::move(overrides);
  }
  return out;
}

RankMemory plan_largest_stage(const std::vector<PlannedModel>& stages, const config::JobConfig& config,
                              at::Device device, int num_data_ranks) {
  RankMemory largest;
  for (const auto& model : stages) {
    const RankMemory memory = plan_rank(model, config, {.device = device, .num_data_ranks = num_data_ranks});
    if (memory.total(Tier::kDevice) > largest.total(Tier::kDevice)) largest = memory;
  }
  return largest;
}

int ranks_of_model(const config::JobConfig& config) {
  return static_cast<int>(config.pipeline.stages * config.tensor_parallel.size);
}

std::vector<PlannedSetting> plan_settings(const PlannedStages& stages, const JobSource& job, at::Device device) {
  auto settings = list_settings(job);
  for (auto& setting : settings) {
    const int data_ranks = job.world_size / ranks_of_model(setting.config);
    setting.memory = plan_largest_stage(stages.of(setting.config), setting.config, device, data_ranks);
  }
  return settings;
}

}  // namespace dslaunch::runtime::engine::plan
