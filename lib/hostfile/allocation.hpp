// What a hostfile, filters and the environment resolve to: the hosts of a job in launch order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::hostfile {

struct Host {
  std::string name;              // as the user wrote it
  std::string user;              // empty: the current one
  std::optional<uint16_t> port;  // of its sshd
  std::vector<int> slots;        // ascending slot (device) numbers
};

struct Allocation {
  std::string source;  // "hostfile PATH" | "local" | ...
  std::vector<Host> hosts;
  int world_size() const {
    int n = 0;
    for (const auto& host : hosts) n += static_cast<int>(host.slots.size());
    return n;
  }
};

}  // namespace dslaunch::hostfile
