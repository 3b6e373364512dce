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
#include "launch/channel/job_kind.hpp"
#include "launch/channel/message.hpp"
#include "launch/default_grace.hpp"
#include "launch/plan/output_choices.hpp"
#include "launch/reach_options.hpp"

namespace dslaunch::launch {

// How ranks get their devices.
enum class DeviceRule {
  kNone,        // CPU ranks
  kOnePerRank,  // each rank sees its own device only (dsworker)
  kAllOfNode,   // each rank sees the devices of its node's slots and picks by LOCAL_RANK (torchrun's habit)
};

struct PlannedRank {
  int rank = 0, local_rank = 0, slot = 0;
  std::map<std::string, std::string> env;  // of this rank only: its device
  std::string placement;                   // for a dry run, where it is known: its cores and threads
};

// The way to a node's agent.
enum class Reach {
  kPipe,  // this machine
  kSsh,
  kSrun,    // inside a Slurm allocation
  kDialIn,  // it comes to us: somebody else started it (--no_ssh, a task of srun, a pod)
};

struct PlannedNode {
  std::string host;  // as the user wrote it
  std::string user;  // of SSH; empty: the configured one
  std::optional<uint16_t> port;
  Reach reach = Reach::kPipe;
  std::string program;  // the agent's, where it was pushed to; empty: see ReachOptions
  int node_rank = 0;
  std::vector<PlannedRank> ranks;
};

struct LaunchPlan {
  std::string job_id;
  JobKind kind = JobKind::kExec;
  std::string device = "cpu";                  // cpu | cuda; "auto": decided when all agents have said what they have
  std::string source;                          // where the hosts come from
  DeviceRule device_rule = DeviceRule::kNone;  // of GPU ranks
  std::string master_addr;                     // empty: chosen when the agents are there
  uint16_t master_port = 0;                    // 0: the kernel chooses when the job starts
  std::string cwd;
  std::string run_dir;       // empty: the job's own folder takes the logs
  std::string job_folder;    // under the user's state folder; empty: none
  bool append_logs = false;  // else the logs of an earlier launch are replaced
  OutputChoices output;
  bool detach = false;                         // the job goes on in the background
  std::vector<std::string> argv;               // the same for every rank
  std::map<std::string, std::string> set_env;  // --env and what the launch adds for all ranks, shown by a dry run
  std::vector<std::string> env_files;          // that variables were read from, in order
  std::vector<std::string> warnings;           // of what was asked for and is not done
  std::map<std::string, std::string> env;      // inherited, with set_env on top
  std::map<std::string, std::string> travelling_env;  // what of `env` goes to other machines
  std::string venv;                                   // on every host; empty: none
  BindingRequest binding;
  ReachOptions reach;
  bool ask_devices = false;  // the agent of this machine has to say what it has, too
  int restart_count = 0, max_restarts = 0;
  Preflight preflight;                       // for hosts other than this machine
  std::map<std::string, std::string> files;  // that travel to other machines, path -> content
  std::chrono::milliseconds grace = kDefaultGrace;
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<PlannedNode> nodes;

  bool has_remote_nodes() const {
    for (const auto& node : nodes) {
      if (node.reach != Reach::kPipe) return true;
    }
    return false;
  }
  // The folder whose logs/ gets HOST.RANK.log; empty: none does.
  const std::string& log_root() const { return run_dir.empty() ? job_folder : run_dir; }
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

// Nodes and ranks of an allocation: ranks count through the hosts in order. `visible` names the devices of this machine
// by slot, as CUDA_VISIBLE_DEVICES wants them; a slot beyond it is named by its number.
std::vector<PlannedNode> plan_nodes(const hostfile::Allocation& allocation, DeviceRule rule,
                                    const std::vector<std::string>& visible);

// Names the ranks' devices in their environment. Of a node of another machine: once it has said what it has.
void assign_devices(PlannedNode& node, DeviceRule rule, const std::vector<std::string>& visible);

// For people and, with the same content, for programs.
std::string plan_text(const LaunchPlan& plan);
std::string plan_json(const LaunchPlan& plan);

}  // namespace dslaunch::launch
