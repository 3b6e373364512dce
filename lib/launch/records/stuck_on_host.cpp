#include "launch/records/stuck_on_host.hpp"

#include "base/format.hpp"

namespace dslaunch::launch {

std::string describe(const StuckOnHost& stuck) {
  const std::string who = stuck.rank >= 0 ? fmt::format("rank {} on {}", stuck.rank, stuck.host) : stuck.host;
  return fmt::format("{}: {}", who, spawn::describe(stuck.process));
}

}  // namespace dslaunch::launch
