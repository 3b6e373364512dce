#include "launch/stacks/collect_stacks.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parallel_for_each.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/split.hpp"
#include "base/write_all.hpp"
#include "launch/stacks/kernel_stacks.hpp"
#include "launch/stacks/stack_tool.hpp"
#include "ports/process_trees.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

// Each debugger needs memory and a core.
constexpr size_t kMaxAtOnce = 4;
constexpr size_t kMaxProcesses = 16;  // per rank
constexpr size_t kMaxTextOfAll = 16U << 20;

void append(ProcessStacks& to, const ports::ProcessStat& process, bool is_child, const std::string& text) {
  to.text += fmt::format("{} {}", is_child ? "child process" : "process", printable(process.name));
  const bool is_held = process.state == 'T' || process.state == 't' || process.state == 'D';
  to.text += is_held ? fmt::format(", which {}\n", process_state_text(process.state)) : "\n";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    to.text += fmt::format("  {}\n", printable(text.substr(at, end - at)));
    at = end + 1;
  }
}

// The rank's own process comes first: it shows the rank's state.
ProcessStacks stacks_of(const std::vector<ports::TreeProcess>& tree, pid_t root, Deadline deadline) {
  auto ordered = tree;
  std::stable_partition(ordered.begin(), ordered.end(), [&](const auto& process) { return process.pid == root; });
  ProcessStacks out{.pid = root, .source = "kernel", .text = {}, .note = {}};
  for (size_t i = 0; i < ordered.size() && i < kMaxProcesses; ++i) {
    const pid_t pid = ordered[i].pid;
    const std::string by_kernel = kernel_stacks(pid);
    const ToolStacks by_tool = tool_stacks(pid, deadline);
    if (i == 0 && !by_tool.tool.empty()) out.source = by_tool.tool;
    if (i == 0) out.note = by_tool.note;
    append(out, ordered[i].stat, pid != root, by_tool.tool.empty() ? by_kernel : by_tool.text);
  }
  if (ordered.size() > kMaxProcesses) out.text += fmt::format("and {} more\n", ordered.size() - kMaxProcesses);
  return out;
}

}  // namespace

std::vector<ProcessStacks> collect_stacks(const std::vector<pid_t>& pids) {
  const auto trees = ports::process_trees(pids);
  const Deadline deadline = Deadline::after(kToolTime);
  std::vector<ProcessStacks> all(pids.size());
  std::atomic<size_t> next{0};
  parallel_for_each(std::min(pids.size(), kMaxAtOnce), [&](size_t) {
    for (size_t i; (i = next++) < pids.size();) {
      const auto tree = trees.find(pids[i]);
      if (tree != trees.end()) all[i] = stacks_of(tree->second, pids[i], deadline);
    }
  });
  std::erase_if(all, [](const auto& stacks) { return stacks.pid == 0; });
  for (auto& stacks : all) {
    const size_t most = kMaxTextOfAll / std::max<size_t>(all.size(), 1);
    if (stacks.text.size() > most) stacks.text = stacks.text.substr(0, most) + "\n(cut)\n";
  }
  return all;
}

std::string stacks_to_json(const std::vector<ProcessStacks>& stacks) {
  Json list = Json::array();
  for (const auto& each : stacks) {
    list.push_back({{"pid", each.pid}, {"source", each.source}, {"text", each.text}, {"note", each.note}});
  }
  return dump_json(list) + "\n";
}

std::optional<std::vector<ProcessStacks>> stacks_from_json(const std::string& text) {
  try {
    std::vector<ProcessStacks> stacks;
    for (const Json& each : Json::parse(text)) {
      stacks.push_back({each.at("pid").get<int64_t>(), each.at("source").get<std::string>(),
                        each.at("text").get<std::string>(), each.at("note").get<std::string>()});
    }
    return stacks;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

int print_stacks(const std::string& pids) {
  std::vector<pid_t> numbers;
  for (const auto& word : split(pids, ',')) {
    const auto number = parse_int<pid_t>(word);
    if (!number) throw UserError(ExitCode::kUsage, fmt::format("--stacks {}: expected process numbers", pids));
    numbers.push_back(*number);
  }
  const int error = write_all(STDOUT_FILENO, stacks_to_json(collect_stacks(numbers)));
  if (error != 0) throw SystemError("write to", "standard output", error);
  return 0;
}

}  // namespace dslaunch::launch
