#include "launch/plan_job.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/hosts.hpp"
#include "launch/job_id.hpp"
#include "launch/programs.hpp"
#include "launch/rank_environment.hpp"
#include "launch/supervisor.hpp"

namespace dslaunch::launch {
namespace {

std::map<std::string, std::string> inherited_environment() {
  std::map<std::string, std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  remove_launch_variables(env);
  return env;
}

std::string working_folder(const LaunchOptions& options) {
  std::error_code error;
  if (options.chdir.empty()) {
    auto here = std::filesystem::current_path(error);
    if (error) throw SystemError("getcwd", "the present folder", error.value());
    return here.string();
  }
  if (!std::filesystem::is_directory(options.chdir, error)) {
    throw UserError(ExitCode::kNoInput, fmt::format("--chdir {}: there is no such folder", options.chdir));
  }
  return std::filesystem::absolute(options.chdir).string();
}

}  // namespace

LaunchPlan plan_job(const LaunchOptions& options, bool need_cuda_build, DeviceRule cuda_rule) {
  ResolvedHosts hosts = resolve_hosts(options, need_cuda_build);
  LaunchPlan plan;
  plan.job_id = make_job_id();
  plan.device = hosts.device;
  plan.source = hosts.allocation.source;
  if (!options.master_addr.empty()) plan.master_addr = options.master_addr;
  plan.master_port = options.master_port;
  plan.cwd = working_folder(options);
  plan.grace = options.grace;
  plan.timeout = options.timeout;
  plan.env = inherited_environment();
  for (const auto& [name, value] : options.env) plan.set_env[name] = value;
  for (const auto& [name, value] : plan.set_env) plan.env[name] = value;
  plan.nodes = plan_nodes(hosts.allocation, hosts.device == "cuda" ? cuda_rule : DeviceRule::kNone, hosts.visible);
  return plan;
}

int print_plan(const LaunchPlan& plan, const LaunchOptions& options) {
  std::string text = options.json ? plan_json(plan) : plan_text(plan);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : to_int(ExitCode::kIoError);
}

int launch(const LaunchPlan& plan, const LaunchOptions& options) {
  SupervisorOptions supervisor{.json = options.json, .quiet = options.quiet, .agent_argv = {own_program(), "agent"}};
  return Supervisor(plan, std::move(supervisor)).run();
}

}  // namespace dslaunch::launch
