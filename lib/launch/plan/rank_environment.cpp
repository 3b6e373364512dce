#include "launch/plan/rank_environment.hpp"

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/status_page.hpp"
#include "launch/plan/launch_variables.hpp"
#include "launch/plan/remote_environment.hpp"
#include "ports/process_info.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::launch {
namespace {

rendezvous::LaunchEnv launch_env(const JobDescription& job, const RankJob& rank, uint16_t master_port) {
  rendezvous::LaunchEnv env;
  env.rank = rank.rank;
  env.local_rank = rank.local_rank;
  env.node_rank = job.node_rank;
  env.world_size = job.world_size;
  env.local_world_size = static_cast<int>(job.ranks.size());
  env.num_nodes = job.num_nodes;
  env.master_addr = job.master_addr;
  env.master_port = master_port;
  env.host = job.host;
  env.job_id = job.job_id;
  env.token = job.token;
  env.agent_store = job.kind == JobKind::kRun && master_port != 0;
  env.torch_agent_store = uses_torch_store(job) && master_port != 0;
  env.rank_hosts = job.rank_hosts;
  env.restart_count = job.restart_count;
  env.max_restarts = job.max_restarts;
  return env;
}

// Before main, LibTorch allocates some 50 MB for its operators: with small pages this takes a quarter of the start
// time. A value that is already set is kept.
std::string malloc_in_large_pages(const std::string& tunables) {
  const std::string name = "glibc.malloc.hugetlb";
  if (tunables.find(name) != std::string::npos) return tunables;
  return fmt::format("{}{}{}=1", tunables, tunables.empty() ? "" : ":", name);
}

}  // namespace

std::map<std::string, std::string> rank_environment(const JobDescription& job, const RankJob& rank,
                                                    const NodeFacts& node) {
  std::map<std::string, std::string> env = job.env;
  env.try_emplace("OMP_NUM_THREADS", std::to_string(node.num_threads));
  env.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (job.kind == JobKind::kRun) env["GLIBC_TUNABLES"] = malloc_in_large_pages(env["GLIBC_TUNABLES"]);
  if (!node.error_file.empty()) env["TORCHELASTIC_ERROR_FILE"] = node.error_file;
  if (!node.agent_tag.empty()) env[ports::kAgentVariable] = node.agent_tag;
  if (node.status_fd >= 0) env[kStatusVariable] = std::to_string(node.status_fd);
  for (auto& [name, value] : rendezvous::to_environment(launch_env(job, rank, node.master_port))) env[name] = value;
  for (const auto& [name, value] : rank.env) env[name] = value;
  return env;
}

std::map<std::string, std::string> inherited_environment() {
  auto env = environment_of_this_process();
  remove_launch_variables(env);
  return env;
}

void complete_environment(JobDescription& job) {
  if (job.environment_base == EnvironmentBase::kAgents) {
    job.env = merged_environment(inherited_environment(), job.env);
  }
  if (!job.venv.empty()) apply_venv(job.env, job.venv);
}

}  // namespace dslaunch::launch
