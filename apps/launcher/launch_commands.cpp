// `run` and `exec`, and the agent that they start.
#include <csignal>
#include <filesystem>

#include "commands.hpp"
#include "launch/agent/agent.hpp"
#include "launch/agent/guard.hpp"
#include "launch/commands/launch_commands.hpp"
#include "launch/nodes/cleanup_nodes.hpp"
#include "launch/stacks/collect_stacks.hpp"
#include "options.hpp"

namespace dslaunch::launcher {

static launch::StartCommand start_of(const Arguments& arguments) {
  std::error_code ignored;
  return {arguments.invoked_as, arguments.typed, std::filesystem::current_path(ignored).string()};
}

int run_command(const Arguments& arguments) {
  auto options = read_run_options(arguments);
  if (!options) return 0;
  options->launch.start = start_of(arguments);
  return launch::run_job(*options);
}

int exec_command(const Arguments& arguments) {
  auto options = read_exec_options(arguments);
  if (!options) return 0;
  options->launch.start = start_of(arguments);
  return launch::exec_job(*options);
}

int agent_command(const Arguments& arguments) {
  auto options = read_agent_options(arguments);
  if (!options) return 0;
  if (!options->stacks.empty()) return launch::print_stacks(options->stacks);
  if (options->cleanup_job.empty()) {
    launch::put_under_guard();
    return launch::run_agent_on_standard_streams(*options);
  }
  std::signal(SIGHUP, SIG_IGN);  // the cleanup ends by itself, even if no process waits for it any more
  launch::cleanup_this_host(options->cleanup_job);
  return 0;
}

}  // namespace dslaunch::launcher
