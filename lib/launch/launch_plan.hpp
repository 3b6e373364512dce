// What a launch will do: a value that can be printed and tested without starting anything. The supervisor carries it
// out. No secrets in it: the job's token is made when the job starts.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hostfile/allocation.hpp"
#include "launch/job_kind.hpp"

namespace dslaunch::launch {

struct PlannedRank {
  int rank = 0, local_rank = 0, slot = 0;
  std::map<std::string, std::string> env;  // of this rank only: its device
};

struct PlannedNode {
  std::string host;  // as the user wrote it
  int node_rank = 0;
  std::vector<PlannedRank> ranks;
};

struct LaunchPlan {
  std::string job_id;
  JobKind kind = JobKind::kExec;
  std::string device = "cpu";  // cpu | cuda
  std::string source;          // where the hosts come from
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;  // 0: the kernel chooses when the job starts
  std::string cwd;
  std::string run_dir;                         // empty: no files are written
  bool append_logs = false;                    // else the logs of an earlier attempt are replaced
  std::vector<std::string> argv;               // the same for every rank
  std::map<std::string, std::string> set_env;  // --env and what the launch adds for all ranks, shown by a dry run
  std::map<std::string, std::string> env;      // inherited, with set_env on top
  std::chrono::milliseconds grace{15000};
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<PlannedNode> nodes;

  int world_size() const {
    int n = 0;
    for (const auto& node : nodes) n += static_cast<int>(node.ranks.size());
    return n;
  }
  std::vector<std::string> rank_hosts() const {
    std::vector<std::string> hosts;
    for (const auto& node : nodes) hosts.insert(hosts.end(), node.ranks.size(), node.host);
    return hosts;
  }
};

// How ranks get their devices.
enum class DeviceRule {
  kNone,        // CPU ranks
  kOnePerRank,  // each rank sees its own device only (dsworker)
  kAllOfNode,   // each rank sees the devices of its node's slots and picks by LOCAL_RANK (torchrun's habit)
};

// Nodes and ranks of an allocation: ranks count through the hosts in order. `visible` names the devices of this machine
// by slot, as CUDA_VISIBLE_DEVICES wants them; a slot beyond it is named by its number.
std::vector<PlannedNode> plan_nodes(const hostfile::Allocation& allocation, DeviceRule rule,
                                    const std::vector<std::string>& visible);

// For people and, with the same content, for programs.
std::string plan_text(const LaunchPlan& plan);
std::string plan_json(const LaunchPlan& plan);

}  // namespace dslaunch::launch
