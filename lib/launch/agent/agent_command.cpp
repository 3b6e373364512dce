// `dslaunch agent`: the agent as a separate program, started by another dslaunch.
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/error.hpp"
#include "launch/agent/agent.hpp"
#include "launch/plan/devices.hpp"

namespace dslaunch::launch {

int run_agent_on_standard_streams(const AgentCommand& command) {
  UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  UniqueFd output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!input.valid() || !output.valid()) throw SystemError("fcntl", "the agent's standard streams");
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) throw SystemError("open", "/dev/null");
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  if (command.listener >= 0) ::fcntl(command.listener, F_SETFD, FD_CLOEXEC);
  if (command.write_preamble && ::write(output.get(), kAgentPreamble.data(), kAgentPreamble.size()) < 0) {
    throw SystemError("write", "to the launcher");
  }
  AgentOptions options{.hello = {}, .listener = UniqueFd(command.listener)};
  if (command.report_devices) {
    DeviceSituation situation = look_for_devices();
    options.hello.devices = std::move(situation.visible);
    options.hello.device_error = std::move(situation.error);
  }
  Agent agent(ChannelToLauncher(std::move(input), std::move(output)), std::move(options));
  bool good = agent.run();
  agent.ignore_signals();
  return good ? 0 : 1;
}

}  // namespace dslaunch::launch
