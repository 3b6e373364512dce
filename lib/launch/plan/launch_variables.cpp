#include "launch/plan/launch_variables.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/status_page.hpp"
#include "ports/process_info.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::launch {
namespace {

struct LaunchVariable {
  std::string_view name, instead;
};

constexpr std::string_view kCount = "use --num_gpus, --num_nodes, --hostfile and --include";
constexpr std::string_view kNode = "nodes are numbered in the hostfile's order, or with --no_ssh by --node_rank";
constexpr std::string_view kOneRole = "all ranks have the same role";
constexpr std::string_view kRestarts = "use --max_restarts";
constexpr std::string_view kOfThisJob = "its value is specific to one job";
constexpr std::string_view kErrorFile = "each rank has its own file for its last error";
constexpr std::string_view kDevices =
    "choose GPUs with --include HOST:SLOT,... or --num_gpus, or set it for dslaunch itself; --device cpu uses no "
    "GPUs";

constexpr auto kVariables = std::to_array<LaunchVariable>({
    {"RANK", kCount},
    {"LOCAL_RANK", kCount},
    {"WORLD_SIZE", kCount},
    {"LOCAL_WORLD_SIZE", kCount},
    {"NODE_RANK", kNode},
    {"GROUP_RANK", kNode},
    {"GROUP_WORLD_SIZE", kNode},
    {"ROLE_RANK", kCount},
    {"ROLE_WORLD_SIZE", kCount},
    {"ROLE_NAME", kOneRole},
    {"MASTER_ADDR", "use --master_addr"},
    {"MASTER_PORT", "use --master_port"},
    {"TORCHELASTIC_RESTART_COUNT", kRestarts},
    {"TORCHELASTIC_MAX_RESTARTS", kRestarts},
    {"TORCHELASTIC_RUN_ID", kOfThisJob},
    {"TORCHELASTIC_USE_AGENT_STORE", kOfThisJob},
    {"TORCHELASTIC_ERROR_FILE", kErrorFile},
    {rendezvous::kTokenVariable, "set it for dslaunch itself"},
    {ports::kJobIdVariable, kOfThisJob},
    {ports::kAgentVariable, kOfThisJob},
    {"DSLAUNCH_AGENT_STORE", kOfThisJob},
    {"DSLAUNCH_RANK_HOSTS", kOfThisJob},
    {"DSLAUNCH_HOST", kOfThisJob},
    {kStatusVariable, kOfThisJob},
});

}  // namespace

std::string instead_of_setting(const std::string& name, bool gpu_ranks) {
  if (gpu_ranks && name == "CUDA_VISIBLE_DEVICES") return std::string(kDevices);
  const auto* found = std::find_if(kVariables.begin(), kVariables.end(), [&](const auto& v) { return v.name == name; });
  return found == kVariables.end() ? "" : std::string(found->instead);
}

void remove_launch_variables(std::map<std::string, std::string>& env) {
  std::erase_if(env, [](const auto& entry) {
    return entry.first.starts_with("TORCHELASTIC_") || !instead_of_setting(entry.first, false).empty();
  });
}

}  // namespace dslaunch::launch
