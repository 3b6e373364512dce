// Groups the stacks of a job's ranks, so that equal stacks are shown once. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::launch {

// One rank's stacks, as its agent answers.
struct RankStack {
  int rank = 0;
  int64_t pid = 0;
  std::string source;  // "py-spy", "gdb", "kernel"
  std::string text, note;

  bool operator==(const RankStack&) const = default;
};

// Ranks whose stacks are equal except for addresses, pids and thread ids; the first rank's stacks are shown.
struct StackGroup {
  std::vector<RankStack> ranks;  // ascending
};
// In the order of their first ranks.
std::vector<StackGroup> group_stacks(std::vector<RankStack> stacks);

// The text to compare: without addresses, pids and thread ids.
std::string without_numbers_of_processes(const std::string& text);

}  // namespace dslaunch::launch
