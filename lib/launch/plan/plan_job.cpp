#include "launch/plan/plan_job.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/printable.hpp"
#include "launch/plan/describe_job.hpp"
#include "launch/plan/launch_variables.hpp"
#include "launch/plan/master_address.hpp"
#include "launch/plan/node_binding.hpp"
#include "launch/plan/rank_environment.hpp"
#include "launch/plan/read_env_file.hpp"
#include "launch/plan/remote_environment.hpp"
#include "launch/plan/working_dir.hpp"
#include "launch/records/job_dirs.hpp"
#include "launch/records/job_id.hpp"

namespace dslaunch::launch {
namespace {

std::string dir_of_ranks(const LaunchOptions& options) {
  if (options.chdir.empty()) return working_dir(", or give --chdir DIR");
  std::error_code error;
  const auto dir = std::filesystem::absolute(options.chdir, error);
  if (error || !std::filesystem::is_directory(dir, error)) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("--chdir {}: no such directory{}", options.chdir, did_you_mean_file(options.chdir)));
  }
  return dir.string();
}

// Such a variable would have no effect if set by hand.
void refuse_launch_variables(const LaunchOptions& options, bool gpu_ranks) {
  std::vector<std::string> refused;
  for (const auto& [name, value] : options.env) {
    std::string instead = instead_of_setting(name, gpu_ranks);
    if (instead.empty()) continue;
    refused.push_back(fmt::format("--env {}: the launcher sets this variable for every rank; {}", name, instead));
  }
  if (!refused.empty()) throw UserError(ExitCode::kUsage, fmt::format("{}", fmt::join(refused, "\n")));
}

// A file may hold a saved environment in which another launch had set these variables.
void leave_out_launch_variables(Assignments& assignments, const std::string& file, bool gpu_ranks,
                                std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  std::erase_if(assignments, [&](const auto& assignment) {
    bool ours = !instead_of_setting(assignment.first, gpu_ranks).empty();
    if (ours) names.push_back(assignment.first);
    return ours;
  });
  if (names.empty()) return;
  warnings.push_back(
      fmt::format("{} in {}: ignored, the launcher sets them for every rank", fmt::join(names, ", "), file));
}

std::vector<EnvFile> files_of_variables(const LaunchOptions& options) {
  const char* home = std::getenv("HOME");
  const char* name = std::getenv("DS_ENV_FILE");
  std::error_code gone;
  std::vector<EnvFile> files;
  for (auto& path : default_env_files(home == nullptr ? "" : home, std::filesystem::current_path(gone).string(),
                                      name == nullptr ? std::nullopt : std::optional<std::string>(name))) {
    files.push_back({std::move(path), name != nullptr});
  }
  for (const auto& path : options.env_files) files.push_back({path, true});
  return files;
}

// Files first, the command line last: later values override earlier ones.
std::map<std::string, std::string> variables_to_set(const LaunchOptions& options, bool gpu_ranks, LaunchPlan& plan) {
  refuse_launch_variables(options, gpu_ranks);
  std::map<std::string, std::string> variables;
  for (const auto& file : files_of_variables(options)) {
    Assignments assignments = read_env_file(file, plan.warnings);
    plan.env_files.push_back(file.path);
    leave_out_launch_variables(assignments, file.path, gpu_ranks, plan.warnings);
    for (auto& [key, value] : assignments) variables[key] = std::move(value);
  }
  for (const auto& [key, value] : options.env) variables[key] = value;
  return variables;
}

// The path is the same on every host, so it is not resolved against this host's file system.
std::string venv_dir(const LaunchOptions& options) {
  if (options.venv.empty()) return {};
  std::string dir = absolute_path(options.venv);
  if (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();
  return dir;
}

// Resolves the settings of this machine's ranks, as its agent will.
void bind_ranks_here(LaunchPlan& plan) {
  for (auto& node : plan.nodes) {
    if (node.reach != Reach::kPipe) continue;
    JobDescription job = describe_job(plan, node, {}, "");
    complete_environment(job);
    auto bindings = bind_ranks(job);
    for (size_t i = 0; i < node.ranks.size(); ++i) node.ranks[i].placement = describe(bindings[i]);
  }
}

}  // namespace

LaunchPlan plan_job(const LaunchOptions& options, const ResolvedHosts& hosts, DeviceRule cuda_rule) {
  LaunchPlan plan;
  plan.job_id = make_job_id(has_job_dir);
  plan.name = options.name;
  plan.start = options.start;
  plan.device = hosts.device;
  plan.device_rule = cuda_rule;
  plan.source = hosts.allocation.source;
  plan.master_addr = options.hosts.master_addr;
  plan.master_port = hosts.master_port != 0 ? hosts.master_port : options.hosts.master_port;
  plan.cwd = dir_of_ranks(options);
  plan.grace = options.grace;
  plan.timeout = options.timeout;
  plan.output = options.output;
  plan.detach = options.detach;
  plan.env = inherited_environment();
  plan.exported_env = exported_environment(plan.env);
  plan.set_env = variables_to_set(options, hosts.device != "cpu", plan);
  for (const auto& [name, value] : plan.set_env) plan.env[name] = plan.exported_env[name] = value;
  plan.venv = venv_dir(options);
  plan.binding = options.binding;
  plan.max_restarts = options.max_restarts;
  plan.reach = options.reach;
  plan.query_devices = hosts.device == "auto";
  plan.nodes = plan_nodes(hosts.allocation, hosts.device == "cuda" ? cuda_rule : DeviceRule::kNone, hosts.visible);
  for (auto& node : plan.nodes) node.reach = hosts.reach.at(node.node_rank);
  if (!plan.master_addr.empty() && !plan.has_remote_nodes()) check_master_address_is_here(plan.master_addr);
  return plan;
}

int print_plan(LaunchPlan plan, const LaunchOptions& options) {
  bind_ranks_here(plan);
  if (options.json) {
    std::fputs(plan_json(plan).c_str(), stdout);
  } else {
    print_text(plan_text(plan));
  }
  return 0;
}

}  // namespace dslaunch::launch
