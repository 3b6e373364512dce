// `run` and `exec`, and the agent that they start.
#include "commands.hpp"
#include "launch/agent.hpp"
#include "launch/exec_job.hpp"
#include "launch/run_job.hpp"
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
  return options ? launch::run_agent_on_standard_streams(*options) : 0;
}

}  // namespace dslaunch::launcher
