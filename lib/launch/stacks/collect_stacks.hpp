// The stacks of this host's ranks: `dslaunch agent --stacks`, which an agent starts in a separate process, since a
// debugger takes seconds and may hang.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::launch {

// After this time the collector answers with the stacks that it has; for the rest it gives the kernel's view.
inline constexpr std::chrono::milliseconds kToolTime{25000};

struct ProcessStacks {
  int64_t pid = 0;
  std::string source;  // "py-spy", "gdb", "kernel"
  std::string text;    // of the process and its descendants, one part each
  std::string note;    // which better source failed, and why; may be empty
};

// Several ranks at the same time, each with all of its processes. In the order of `pids`; omits processes that are
// gone.
std::vector<ProcessStacks> collect_stacks(const std::vector<pid_t>& pids);

// The format of the collector's standard output.
std::string stacks_to_json(const std::vector<ProcessStacks>& stacks);
// Empty if the text is not such a document.
std::optional<std::vector<ProcessStacks>> stacks_from_json(const std::string& text);

// The whole program. `pids`: "12,34".
int print_stacks(const std::string& pids);

}  // namespace dslaunch::launch
