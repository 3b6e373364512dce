#include "launch/stacks/kernel_stacks.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::launch {
namespace {

struct CallName {
  long number;
  const char* name;
};

// Calls in which threads usually wait.
constexpr CallName kCalls[] = {
#ifdef SYS_poll  // not on AArch64
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
    {SYS_open, "open"},
    {SYS_stat, "stat"},
#endif
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_openat, "openat"},
    {SYS_close, "close"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_fsync, "fsync"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_ioctl, "ioctl"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_connect, "connect"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_restart_syscall, "restart_syscall"},
};

std::string first_line(const std::string& path) {
  const std::string text = read_whole_file(path).value_or("");
  return text.substr(0, text.find('\n'));
}

std::string thread_text(const std::string& dir, bool is_main) {
  const std::string stat = read_whole_file(dir + "/stat").value_or("");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return {};
  std::string text = fmt::format("{} '{}' {}", is_main ? "main thread" : "thread", printable(first_line(dir + "/comm")),
                                 process_state_text(stat[name_end + 2]));
  if (const auto call = system_call_in(first_line(dir + "/syscall")); !call.empty()) text += ", in " + call;
  if (const auto channel = first_line(dir + "/wchan"); !channel.empty() && channel != "0") text += " (" + channel + ")";
  return text;
}

}  // namespace

std::string process_state_text(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
    case 'I':
      return "sleeps";
    case 'D':
      return "waits in the kernel, e.g. for a disk, a network file system or a driver";
    case 'T':
      return "is stopped, e.g. by SIGSTOP";
    case 't':
      return "is stopped by a debugger";
    default:
      return "has ended";
  }
}

std::string system_call_in(const std::string& line) {
  const auto number = parse_int<long>(line.substr(0, line.find(' ')));
  if (!number || *number < 0) return {};
  const auto* found =
      std::find_if(std::begin(kCalls), std::end(kCalls), [&](const CallName& each) { return each.number == *number; });
  return found == std::end(kCalls) ? fmt::format("system call {}", *number) : found->name;
}

std::string kernel_stacks(pid_t pid) {
  std::vector<std::pair<std::string, int>> lines;  // in the order of first occurrence
  std::error_code gone;
  std::vector<pid_t> threads;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/task", pid), gone), end; at != end && !gone;
       at.increment(gone)) {
    if (const auto thread = parse_int<pid_t>(at->path().filename().string())) threads.push_back(*thread);
  }
  std::sort(threads.begin(), threads.end());
  for (pid_t thread : threads) {
    const auto text = thread_text(fmt::format("/proc/{}/task/{}", pid, thread), thread == pid);
    if (text.empty()) continue;
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == text; });
    found == lines.end() ? static_cast<void>(lines.emplace_back(text, 1)) : static_cast<void>(++found->second);
  }
  std::string all;
  for (const auto& [text, count] : lines) all += count == 1 ? text + "\n" : fmt::format("{} x {}\n", count, text);
  return all;
}

}  // namespace dslaunch::launch
