// `run` and `exec`, and the agent that they start.
#include <csignal>

#include "base/whole_number.hpp"
#include "commands.hpp"
#include "launch/agent/agent.hpp"
#include "launch/agent/guard.hpp"
#include "launch/exec_job.hpp"
#include "launch/run_job.hpp"
#include "launch/stacks/collect_stacks.hpp"
#include "launch/supervisor/sweep_nodes.hpp"
#include "option_values.hpp"
#include "options.hpp"

namespace dslaunch::launcher {

int run_command(const Arguments& arguments) {
  auto options = read_run_options(arguments);
  return options ? launch::run_job(*options) : 0;
}

int exec_command(const Arguments& arguments) {
  auto options = read_exec_options(arguments);
  return options ? launch::exec_job(*options) : 0;
}

int agent_command(const Arguments& arguments) {
  auto options = read_agent_options(arguments);
  if (!options) return 0;
  if (!options->stacks.empty()) return launch::print_stacks(options->stacks);
  if (options->sweep.empty()) {
    launch::put_under_guard();
    return launch::run_agent_on_standard_streams(*options);
  }
  std::signal(SIGHUP, SIG_IGN);  // it ends by itself, also where nobody waits for it any more
  launch::sweep_this_host(options->sweep);
  return 0;
}

int guard_command(const Arguments& arguments) {
  const auto agent = arguments.words.size() == 1 ? whole_number<pid_t>(arguments.words[0]) : std::nullopt;
  if (!agent) misuse("guard is what an agent's parent becomes; it is nothing to start by hand");
  return launch::guard_agent(*agent);
}

}  // namespace dslaunch::launcher
