// The user's options for the hosts of a job: which hosts, how many, and this host's position among them. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::hostfile {

struct HostOptions {
  std::optional<std::string> hostfile;  // path
  std::string include, exclude;         // empty: not given
  std::optional<int> num_nodes;         // the first N hosts
  std::optional<int> num_gpus;          // the first N slots of each host
  bool no_ssh = false;                  // one dslaunch on every node: this one is node `node_rank`, node 0 the launcher
  std::optional<int> node_rank;
  std::string master_addr;   // empty: not given
  uint16_t master_port = 0;  // 0: not given
};

}  // namespace dslaunch::hostfile
