#include "spawn/job_sweep.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "spawn/pidfd.hpp"

namespace dslaunch::spawn {
namespace {

std::string read_whole(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[16384];
  ssize_t got;
  while (fd.valid() && (got = ::read(fd.get(), buffer, sizeof buffer)) > 0) text.append(buffer, got);
  return text;
}

std::string proc_path(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// Entries are separated by NUL; a zombie has none.
bool holds_entry(const std::string& environment, const std::string& entry) {
  for (size_t at = 0; (at = environment.find(entry, at)) != std::string::npos; ++at) {
    size_t end = at + entry.size();
    if ((at == 0 || environment[at - 1] == '\0') && (end == environment.size() || environment[end] == '\0'))
      return true;
  }
  return false;
}

bool carries(pid_t pid, const JobMarks& marks) {
  std::string environment = read_whole(proc_path(pid, "environ"));
  return !marks.empty() && std::all_of(marks.begin(), marks.end(),
                                       [&](const std::string& mark) { return holds_entry(environment, mark); });
}

// "pid (name) state ppid ...": the name may hold anything, so look behind its last parenthesis.
bool is_living_child_of(pid_t pid, pid_t parent) {
  std::string stat = read_whole(proc_path(pid, "stat"));
  size_t end = stat.rfind(')');
  if (end == std::string::npos || end + 4 > stat.size()) return false;
  char state = stat[end + 2];
  return state != 'Z' && state != 'X' && std::atoi(stat.c_str() + end + 4) == parent;
}

std::vector<pid_t> living_processes(const std::function<bool(pid_t)>& wanted) {
  std::vector<pid_t> found;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    pid_t pid = std::atoi(entry->d_name);
    if (pid > 1 && pid != ::getpid() && wanted(pid)) found.push_back(pid);
  }
  return found;
}

void reap_zombies() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// A process held by descriptor cannot be mistaken for a later one with the same number.
using Held = std::map<pid_t, UniqueFd>;

void wait_for_ends(Held& held, Deadline deadline) {
  while (!held.empty() && !deadline.passed()) {
    std::vector<pollfd> polls;
    for (const auto& [pid, fd] : held) polls.push_back({fd.get(), POLLIN, 0});
    if (::poll(polls.data(), polls.size(), static_cast<int>(deadline.left().count())) <= 0) continue;
    size_t index = 0;
    for (auto it = held.begin(); it != held.end(); ++index) it = polls[index].revents != 0 ? held.erase(it) : ++it;
  }
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw SystemError("prctl", "PR_SET_CHILD_SUBREAPER");
}

std::vector<pid_t> processes_with(const JobMarks& marks) {
  return living_processes([&](pid_t pid) { return carries(pid, marks); });
}

std::vector<pid_t> children_of_this_process() {
  return living_processes([parent = ::getpid()](pid_t pid) { return is_living_child_of(pid, parent); });
}

size_t sweep_job(const JobMarks& marks, std::chrono::milliseconds patience, bool children_too) {
  using namespace std::chrono_literals;
  auto ours = [&, parent = ::getpid()](pid_t pid) {
    return carries(pid, marks) || (children_too && is_living_child_of(pid, parent));
  };
  std::set<pid_t> signalled;
  Deadline patient = Deadline::after(patience);
  // Bounded: a process in the kernel's uninterruptible sleep does not answer even to SIGKILL.
  for (Deadline give_up = Deadline::after(patience + 5s); !give_up.passed();) {
    if (children_too) reap_zombies();
    Held held;
    int signal = patient.passed() ? SIGKILL : SIGTERM;
    for (pid_t pid : living_processes(ours)) {
      UniqueFd fd = open_pidfd(pid);
      if (!fd.valid() || !ours(pid)) continue;
      signal_pidfd(fd, signal);
      signalled.insert(pid);
      held.emplace(pid, std::move(fd));
    }
    if (held.empty()) break;
    wait_for_ends(held, signal == SIGTERM ? patient : Deadline::after(200ms));
  }
  if (children_too) reap_zombies();
  return signalled.size();
}

}  // namespace dslaunch::spawn
