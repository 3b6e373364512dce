// The stacks of a job's ranks, those that are equal once. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::launch {

// Of one rank, as its agent answers.
struct RankStack {
  int rank = 0;
  int64_t pid = 0;
  std::string source;  // "py-spy", "gdb", "kernel"
  std::string text, note;

  bool operator==(const RankStack&) const = default;
};

// Ranks whose stacks are equal but for addresses and numbers of processes and threads; the first one's are shown.
struct StackGroup {
  std::vector<RankStack> ranks;  // ascending
};
// In the order of their first ranks.
std::vector<StackGroup> fold_stacks(std::vector<RankStack> stacks);

// What is compared: addresses and numbers of processes and threads are taken out.
std::string without_numbers_of_processes(const std::string& text);

}  // namespace dslaunch::launch
