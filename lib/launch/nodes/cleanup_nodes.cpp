#include "launch/nodes/cleanup_nodes.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/format.hpp"
#include "launch/nodes/node_link.hpp"
#include "launch/records/private_dir.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A lost host is likely to stay lost: do not wait long for it.
constexpr auto kCleanupTimeout = 4000ms;

struct Cleanup {
  std::string host;
  std::unique_ptr<spawn::AgentLink> link;
  spawn::LinkEnds ends;
};

}  // namespace

NodeCleanup cleanup_nodes(const std::vector<PlannedNode>& nodes, const LaunchPlan& plan,
                          const std::string& own_program) {
  NodeCleanup result;
  ReachOptions reach = plan.reach;
  reach.ssh.connect_timeout = std::min<std::chrono::milliseconds>(reach.ssh.connect_timeout, kCleanupTimeout);
  std::vector<Cleanup> cleanups;
  for (const auto& node : nodes) {
    if (node.reach == Reach::kPipe) {
      result.stuck_here = cleanup_this_host(plan.job_id);
      continue;
    }
    Cleanup& cleanup = cleanups.emplace_back();
    cleanup.host = node.host;
    cleanup.link = open_node_link(node, reach, own_program, {"--sweep", plan.job_id});
    cleanup.ends = cleanup.link->take_ends();
  }
  Deadline deadline = Deadline::after(kCleanupTimeout);
  for (auto& cleanup : cleanups) {
    cleanup.ends.to_agent.reset();
    bool over = cleanup.link->wait(deadline);
    if (!over || cleanup.link->failure()) result.unreached.push_back(cleanup.host);
    if (!over) cleanup.link->kill();
  }
  return result;
}

std::vector<spawn::StuckProcess> cleanup_this_host(const std::string& job_id) {
  auto result = spawn::cleanup_job({fmt::format("{}={}", spawn::kJobIdVariable, job_id)}, 0ms, false);
  remove_private_dirs(job_id);
  remove_abandoned_private_dirs();
  return std::move(result.stuck);
}

}  // namespace dslaunch::launch
