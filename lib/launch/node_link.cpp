#include "launch/node_link.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "spawn/local/local_link.hpp"
#include "spawn/program/program_link.hpp"
#include "spawn/ssh/ssh_link.hpp"

namespace dslaunch::launch {
namespace {

// The program that is the agent on another machine.
std::string agent_program(const ReachOptions& options, const std::string& own_program) {
  if (options.remote_path.empty()) return own_program;
  return options.remote_path + "/" + std::filesystem::path(own_program).filename().string();
}

std::unique_ptr<spawn::AgentLink> open_ssh(const PlannedNode& node, const ReachOptions& options,
                                           const std::vector<std::string>& agent) {
  spawn::SshOptions ssh;
  ssh.program = options.ssh_program;
  ssh.port = options.ssh_port;
  ssh.connect_timeout = options.connect_timeout;
  return spawn::open_ssh_link({node.host, node.user, node.port}, agent, ssh);
}

}  // namespace

std::vector<std::string> srun_argv(const std::string& host, const std::vector<std::string>& agent) {
  std::vector<std::string> argv{"srun",      "--nodes=1",    "--ntasks=1",      "--nodelist=" + host,
                                "--overlap", "--unbuffered", "--cpu-bind=none", "--kill-on-bad-exit=0",
                                "--quiet",   "--chdir=/"};
  argv.insert(argv.end(), agent.begin(), agent.end());
  return argv;
}

std::unique_ptr<spawn::AgentLink> open_node_link(const PlannedNode& node, const ReachOptions& options,
                                                 const std::string& own_program, const std::vector<std::string>& words,
                                                 int inherited) {
  bool here = node.reach == Reach::kPipe;
  std::vector<std::string> agent{here ? own_program : agent_program(options, own_program), "agent"};
  agent.insert(agent.end(), words.begin(), words.end());
  switch (node.reach) {
    case Reach::kPipe:
      return spawn::open_local_link(agent, inherited);
    case Reach::kSsh:
      return open_ssh(node, options, agent);
    case Reach::kSrun:
      return spawn::open_program_link(srun_argv(node.host, agent), {});
    case Reach::kDialIn:
      break;
  }
  DSL_CHECK(false, "a node that comes to us is not gone to");
}

}  // namespace dslaunch::launch
