// The result of resolving hostfile, filters and environment: the hosts of a job in launch order.
#pragma once
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::hostfile {

struct Host {
  std::string name;              // as the user wrote it
  std::string user;              // empty: the current user
  std::optional<uint16_t> port;  // of its sshd
  std::vector<int> slots;        // ascending slot (device) numbers
};

// 0 .. count-1.
inline std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

struct Allocation {
  std::string source;  // "hostfile PATH" | "local" | ...
  std::vector<Host> hosts;
  std::string note;  // a line for the user about what the source may have meant; mostly empty
  int world_size() const {
    int n = 0;
    for (const auto& host : hosts) n += static_cast<int>(host.slots.size());
    return n;
  }
};

}  // namespace dslaunch::hostfile
