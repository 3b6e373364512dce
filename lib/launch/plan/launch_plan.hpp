// What a launch will do: a value that can be printed and tested without starting anything. The supervisor executes it.
// Contains no secrets: the job's token is generated when the job starts.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "hostfile/allocation.hpp"
#include "launch/channel/message.hpp"
#include "launch/plan/default_grace.hpp"
#include "launch/plan/output_choices.hpp"
#include "launch/plan/reach_options.hpp"
#include "launch/records/job_kind.hpp"
#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

// How ranks get their devices.
enum class DeviceRule {
  kNone,        // CPU ranks
  kOnePerRank,  // each rank sees only its own device (dsworker)
  kAllOfNode,   // each rank sees the devices of its node's slots and picks by LOCAL_RANK (torchrun's convention)
};

struct PlannedRank {
  int rank = 0, local_rank = 0, slot = 0;
  std::map<std::string, std::string> env;  // of this rank only: its device
  std::string placement;                   // its cores and threads, for a dry run, if known
};

// The transport to a node's agent.
enum class Reach {
  kPipe,  // this machine
  kSsh,
  kSrun,      // inside a Slurm allocation
  kNodeJoin,  // externally started, connects to us (--no_ssh, a task of srun, a pod)
};

struct PlannedNode {
  std::string host;  // as the user wrote it
  std::string user;  // for SSH; empty: the configured user
  std::optional<uint16_t> port;
  Reach reach = Reach::kPipe;
  std::string program;  // path of the agent if it was copied to the host; empty: see ReachOptions
  int node_rank = 0;
  std::vector<PlannedRank> ranks;
};

struct LaunchPlan {
  std::string job_id;
  std::string name;    // --name, or that of the run that the job continues; empty: none
  StartCommand start;  // for the job's record
  JobKind kind = JobKind::kExec;
  std::string device = "cpu";  // cpu | cuda; "auto": decided once all agents have reported their devices
  std::string source;          // where the list of hosts comes from
  DeviceRule device_rule = DeviceRule::kNone;  // for GPU ranks
  std::string master_addr;                     // empty: chosen once the agents are connected
  uint16_t master_port = 0;                    // 0: the kernel chooses when the job starts
  std::string cwd;
  std::string run_dir;       // empty: logs go to the job's own directory
  std::string job_dir;       // under the user's state directory; empty: none
  bool append_logs = false;  // false: the logs of an earlier launch are replaced
  OutputChoices output;
  bool detach = false;                              // the job continues in the background
  std::vector<std::string> argv;                    // the same for every rank
  bool add_local_rank = false;                      // each rank's --local_rank=N follows
  std::map<std::string, std::string> set_env;       // --env and what the launch adds for all ranks, shown by a dry run
  std::vector<std::string> env_files;               // whose variables were read, in order
  std::vector<std::string> warnings;                // about requests that are not carried out
  std::map<std::string, std::string> env;           // inherited, with set_env on top
  std::map<std::string, std::string> exported_env;  // the part of `env` that is sent to other machines
  std::string venv;                                 // on every host; empty: none
  BindingRequest binding;
  ReachOptions reach;
  bool query_devices = false;  // this machine's agent, too, has to report its devices
  int restart_count = 0, max_restarts = 0;
  Preflight preflight;                       // for hosts other than this machine
  std::map<std::string, std::string> files;  // sent to other machines, path -> content
  std::chrono::milliseconds grace = kDefaultGrace;
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<PlannedNode> nodes;
  comm::Mesh mesh;  // run: of all ranks

  bool has_remote_nodes() const {
    for (const auto& node : nodes) {
      if (node.reach != Reach::kPipe) return true;
    }
    return false;
  }
  // What hints call the job: its name, else its id.
  const std::string& label() const { return name.empty() ? job_id : name; }
  // The directory whose logs/ gets HOST.RANK.log; empty: there are no such logs.
  const std::string& log_root() const { return run_dir.empty() ? job_dir : run_dir; }
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

// Nodes and ranks of an allocation: ranks are numbered through the hosts in order. `visible` names the devices of this
// machine by slot, as CUDA_VISIBLE_DEVICES expects them; a slot beyond its end is named by its number.
std::vector<PlannedNode> plan_nodes(const hostfile::Allocation& allocation, DeviceRule rule,
                                    const std::vector<std::string>& visible);

// Sets the ranks' devices in their environment. For a node on another machine: call after it has reported its devices.
void assign_devices(PlannedNode& node, DeviceRule rule, const std::vector<std::string>& visible);

// For people and, with the same content, for programs (as JSON).
std::string plan_text(const LaunchPlan& plan);
std::string plan_json(const LaunchPlan& plan);

}  // namespace dslaunch::launch
