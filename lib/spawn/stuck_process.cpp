#include "spawn/stuck_process.hpp"

#include <filesystem>
#include <vector>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::spawn {
namespace {

// All threads: the first one may have ended while another one keeps the process alive.
std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/task", pid), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (const auto thread = parse_int<pid_t>(entry->path().filename().string())) threads.push_back(*thread);
  }
  return threads;
}

std::string wait_channel_of(pid_t thread) {
  const std::string name = read_whole_file(fmt::format("/proc/{}/wchan", thread)).value_or("");
  return name == "0" ? "" : printable(name);
}

}  // namespace

std::optional<StuckProcess> inspect_stuck(pid_t pid) {
  const auto process = ports::read_process_stat(pid);
  std::optional<StuckProcess> stuck;
  if (!process) return stuck;
  for (pid_t thread : threads_of(pid)) {
    const auto stat = ports::read_process_stat(thread);
    if (!stat || !stat->alive() || (stuck && stat->state != 'D')) continue;
    stuck = StuckProcess{pid, process->start_ticks, stat->state, wait_channel_of(thread)};
    if (stat->state == 'D') break;
  }
  return stuck;
}

std::string describe(const StuckProcess& stuck) {
  const std::string channel = stuck.wait_channel.empty() ? "" : fmt::format(", wait channel {}", stuck.wait_channel);
  if (stuck.state != 'D') {
    return fmt::format("process {} has not ended after SIGKILL (state {}{})", stuck.pid, stuck.state, channel);
  }
  return fmt::format(
      "process {} is stuck in the kernel (state D{}) and does not end, even by SIGKILL: it waits for a disk, a network "
      "file system or a driver, and ends when that answers, or with a reboot",
      stuck.pid, channel);
}

}  // namespace dslaunch::spawn
