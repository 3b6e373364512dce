#include "launch/nodes/cleanup_nodes.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/format.hpp"
#include "launch/nodes/node_link.hpp"
#include "launch/records/private_folder.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A lost host is likely to stay lost: do not wait long for it.
constexpr auto kSweepTime = 4000ms;

struct Sweep {
  std::string host;
  std::unique_ptr<spawn::AgentLink> link;
  spawn::LinkEnds ends;
};

}  // namespace

SweptNodes cleanup_nodes(const std::vector<PlannedNode>& nodes, const LaunchPlan& plan,
                         const std::string& own_program) {
  SweptNodes swept;
  ReachOptions reach = plan.reach;
  reach.ssh.connect_timeout = std::min<std::chrono::milliseconds>(reach.ssh.connect_timeout, kSweepTime);
  std::vector<Sweep> sweeps;
  for (const auto& node : nodes) {
    if (node.reach == Reach::kPipe) {
      swept.stuck_here = cleanup_this_host(plan.job_id);
      continue;
    }
    Sweep& sweep = sweeps.emplace_back();
    sweep.host = node.host;
    sweep.link = open_node_link(node, reach, own_program, {"--sweep", plan.job_id});
    sweep.ends = sweep.link->take_ends();
  }
  Deadline patience = Deadline::after(kSweepTime);
  for (auto& sweep : sweeps) {
    sweep.ends.to_agent.reset();
    bool over = sweep.link->wait(patience);
    if (!over || sweep.link->failure()) swept.unreached.push_back(sweep.host);
    if (!over) sweep.link->kill();
  }
  return swept;
}

std::vector<spawn::StuckProcess> cleanup_this_host(const std::string& job_id) {
  auto swept = spawn::cleanup_job({fmt::format("{}={}", spawn::kJobIdVariable, job_id)}, 0ms, false);
  remove_private_folders(job_id);
  remove_abandoned_private_folders();
  return std::move(swept.stuck);
}

}  // namespace dslaunch::launch
