#include "launch/plan/describe_job.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/channel/heartbeat_monitor.hpp"

namespace dslaunch::launch {

JobDescription describe_job(const LaunchPlan& plan, const PlannedNode& node, const std::vector<uint8_t>& token,
                            const std::string& master_addr) {
  JobDescription job;
  job.job_id = plan.job_id;
  job.kind = plan.kind;
  job.token = token;
  job.master_addr = master_addr;
  job.master_port = plan.master_port;
  job.world_size = plan.world_size();
  job.num_nodes = static_cast<int>(plan.nodes.size());
  job.node_rank = node.node_rank;
  job.host = node.host;
  job.rank_hosts = plan.rank_hosts();
  job.cwd = plan.cwd;
  job.env = plan.env;
  job.venv = plan.venv;
  job.binding = plan.binding;
  job.restart_count = plan.restart_count;
  job.max_restarts = plan.max_restarts;
  job.heartbeat_interval = HeartbeatMonitor::interval_for(plan.reach.silence_limit);
  if (node.reach != Reach::kPipe) {
    job.environment_base = EnvironmentBase::kAgents;
    job.env = plan.exported_env;
    job.preflight = plan.preflight;
    job.files = plan.files;
    job.silence_limit = plan.reach.silence_limit;
  }
  for (const auto& rank : node.ranks) {
    job.ranks.push_back({rank.rank, rank.local_rank, plan.argv, rank.env});
    if (plan.add_local_rank) job.ranks.back().argv.push_back(fmt::format("--local_rank={}", rank.local_rank));
  }
  return job;
}

std::string choose_master_address(const LaunchPlan& plan, const std::string& node_0_address) {
  if (!plan.master_addr.empty()) return plan.master_addr;
  if (!plan.has_remote_nodes()) return "127.0.0.1";
  return node_0_address.empty() ? plan.nodes.at(0).host : node_0_address;
}

std::string numeric_address_of(const AgentHello& hello) {
  if (!hello.address.empty() || hello.addresses.empty()) return hello.address;
  return hello.addresses.front();
}

namespace {

std::string devices_of(const PlannedNode& node, const AgentHello& hello) {
  return fmt::format("{} has {}{}", node.host, hello.devices.size(),
                     hello.device_error.empty() ? "" : fmt::format(" ({})", hello.device_error));
}

void resolve_auto_device(LaunchPlan& plan, const std::vector<AgentHello>& hellos) {
  std::vector<std::string> with, without;
  bool any_error = false;
  for (const auto& node : plan.nodes) {
    const auto& hello = hellos.at(node.node_rank);
    (hello.devices.empty() ? without : with).push_back(devices_of(node, hello));
    any_error |= hello.devices.empty() && !hello.device_error.empty();
  }
  if (with.empty() && any_error) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("no host has GPUs that answer ({}); use --device cpu to run without GPUs",
                                fmt::join(without, ", ")));
  }
  if (!with.empty() && !without.empty()) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("some hosts have GPUs and some have none ({}, {}): exclude hosts with --exclude, or "
                                "use --device cpu",
                                fmt::join(with, ", "), fmt::join(without, ", ")));
  }
  plan.device = with.empty() ? "cpu" : "cuda";
  // The workers' command line was written before the device was known.
  auto option = std::find(plan.argv.begin(), plan.argv.end(), "--device");
  if (plan.kind == JobKind::kRun && option != plan.argv.end()) *(option + 1) = plan.device;
}

void check_slots(const PlannedNode& node, const AgentHello& hello) {
  for (const auto& rank : node.ranks) {
    if (rank.slot < static_cast<int>(hello.devices.size())) continue;
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("slot {} of {} has no visible GPU: {}", rank.slot, node.host, devices_of(node, hello)));
  }
}

}  // namespace

void resolve_devices(LaunchPlan& plan, const std::vector<AgentHello>& hellos) {
  if (!plan.has_remote_nodes()) return;
  bool undecided = plan.device == "auto";
  if (undecided) resolve_auto_device(plan, hellos);
  if (plan.device != "cuda") return;
  for (auto& node : plan.nodes) {
    const AgentHello& hello = hellos.at(node.node_rank);
    if (node.reach == Reach::kPipe && !undecided) continue;
    check_slots(node, hello);
    assign_devices(node, plan.device_rule, hello.devices);
  }
}

}  // namespace dslaunch::launch
