#include "launch/nodes/node_link.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "spawn/local/local_link.hpp"
#include "spawn/program/program_link.hpp"
#include "spawn/ssh/ssh_link.hpp"

namespace dslaunch::launch {
namespace {

// `agent` as one task on the node, which may use all resources that the job has there.
std::vector<std::string> srun_argv(const std::string& host, const std::vector<std::string>& agent) {
  std::vector<std::string> argv{"srun",      "--nodes=1",    "--ntasks=1",      "--nodelist=" + host,
                                "--overlap", "--unbuffered", "--cpu-bind=none", "--kill-on-bad-exit=0",
                                "--quiet",   "--chdir=/"};
  argv.insert(argv.end(), agent.begin(), agent.end());
  return argv;
}

// srun's own error output explains what Slurm does not allow; warnings of a successful srun are not shown.
spawn::ProgramLinkOptions srun_options() {
  spawn::ProgramLinkOptions options;
  options.errors = spawn::ProgramLinkOptions::Errors::kCapture;
  options.die_with_us = true;
  options.explain = [](const spawn::ExitCause& cause, const std::string& errors) {
    bool started = cause.kind != spawn::ExitCause::Kind::kNotStarted;
    std::string words = errors.substr(0, errors.find_last_not_of('\n') + 1);
    for (char& c : words) c = c == '\n' ? ' ' : c;
    return spawn::LinkFailure{
        .phase = started ? "srun" : "start",
        .text = fmt::format("srun: {}{}{}", spawn::describe(cause), words.empty() ? "" : ": ", words)};
  };
  return options;
}

}  // namespace

std::string agent_program(const PlannedNode& node, const ReachOptions& options, const std::string& own_program) {
  if (!node.program.empty()) return node.program;
  if (node.reach == Reach::kPipe || options.remote_path.empty()) return own_program;
  return options.remote_path + "/" + std::filesystem::path(own_program).filename().string();
}

spawn::SshTarget ssh_target(const PlannedNode& node) {
  return {node.host, node.user, node.port};
}

std::unique_ptr<spawn::AgentLink> open_node_link(const PlannedNode& node, const ReachOptions& options,
                                                 const std::string& own_program, const std::vector<std::string>& args,
                                                 int inherited) {
  std::vector<std::string> agent{agent_program(node, options, own_program), "agent"};
  agent.insert(agent.end(), args.begin(), args.end());
  switch (node.reach) {
    case Reach::kPipe:
      return spawn::open_local_link(agent, inherited);
    case Reach::kSsh:
      return spawn::open_ssh_link(ssh_target(node), agent, options.ssh);
    case Reach::kSrun:
      return spawn::open_program_link(srun_argv(node.host, agent), srun_options());
    case Reach::kNodeJoin:
      break;
  }
  throw InternalError(__FILE__, __LINE__, "node.reach", "an externally started node has no transport");
}

}  // namespace dslaunch::launch
