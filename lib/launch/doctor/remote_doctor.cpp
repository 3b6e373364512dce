#include "launch/doctor/remote_doctor.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parallel_for_each.hpp"
#include "launch/nodes/node_link.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/process/programs.hpp"
#include "spawn/ssh/run_remote.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// Examining takes moments, and so does the work after a SIGKILL.
constexpr auto kAnswerTime = 60000ms;

RemoteAnswer query_host(const PlannedNode& node, const ReachOptions& reach, const std::vector<std::string>& args,
                        std::chrono::milliseconds time) {
  std::vector<std::string> argv{agent_program(node, reach, own_program())};
  argv.insert(argv.end(), args.begin(), args.end());
  try {
    auto result =
        spawn::run_remote(ssh_target(node), argv, "", reach.ssh, Deadline::after(reach.ssh.connect_timeout + time));
    if (result.failure) return {"", fmt::format("{}: {}", result.failure->phase, result.failure->text)};
    if (!result.out.empty()) return {result.out, ""};
    return {"", fmt::format("{} failed: {}", argv[0], result.err)};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

}  // namespace

HostRounds::HostRounds(LaunchOptions options) : reach_(options.reach) {
  if (!options.hosts.hostfile) return;
  options.device = DeviceChoice::kCpu;  // doctor needs the hosts, not their devices
  ResolvedHosts hosts = resolve_hosts(options, list_hosts(options, find_source(options)), DeviceUser::kAnyProgram);
  nodes_ = plan_nodes(hosts.allocation, DeviceRule::kNone, {});
  for (auto& node : nodes_) node.reach = hosts.reach.at(node.node_rank);
}

std::vector<std::string> HostRounds::names() const {
  std::vector<std::string> names;
  for (const auto& node : nodes_) names.push_back(node.host);
  return names;
}

bool HostRounds::is_here(const std::string& host) const {
  auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& each) { return each.host == host; });
  return node == nodes_.end() || node->reach == Reach::kPipe;
}

std::vector<RemoteAnswer> HostRounds::ask(const std::vector<RemoteQuestion>& questions,
                                          std::chrono::milliseconds waits) const {
  std::vector<RemoteAnswer> answers(questions.size());
  parallel_for_each(questions.size(), [&](size_t i) {
    const RemoteQuestion& question = questions[i];
    auto node =
        std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& each) { return each.host == question.host; });
    DSL_CHECK(node != nodes_.end(), "doctor asks hosts of its own list");
    answers[i] = query_host(*node, reach_, question.args, kAnswerTime + waits);
  });
  return answers;
}

}  // namespace dslaunch::launch
