// The stacks of ranks of this host: `dslaunch agent --stacks`, which an agent starts beside its ranks, since a debugger
// takes seconds and may hang.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::launch {

// After this time the collector answers with what it has; the rest is the kernel's view.
inline constexpr std::chrono::milliseconds kToolTime{25000};

struct ProcessStacks {
  int64_t pid = 0;
  std::string source;  // "py-spy", "gdb", "kernel"
  std::string text;    // of the process and of what it has started, a part for each
  std::string note;    // what would have been better, and why it is not so; may be empty
};

// Several ranks at once, each with all of its processes. In the order of `pids`; those that are gone are left out.
std::vector<ProcessStacks> collect_stacks(const std::vector<pid_t>& pids);

// As the collector's standard output has it.
std::string stacks_to_json(const std::vector<ProcessStacks>& stacks);
// Nothing for what is no such document.
std::optional<std::vector<ProcessStacks>> stacks_from_json(const std::string& text);

// The whole program. `pids`: "12,34".
int print_stacks(const std::string& pids);

}  // namespace dslaunch::launch
