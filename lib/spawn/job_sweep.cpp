#include "spawn/job_sweep.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <set>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "ports/process_info.hpp"
#include "spawn/pidfd.hpp"

namespace dslaunch::spawn {
namespace {

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
  std::string environment = ports::environment_of(pid);
  return !marks.empty() && std::all_of(marks.begin(), marks.end(),
                                       [&](const std::string& mark) { return holds_entry(environment, mark); });
}

bool is_living_child_of(pid_t pid, pid_t parent) {
  auto stat = ports::read_process_stat(pid);
  return stat && stat->alive() && stat->parent == parent;
}

std::vector<pid_t> living_processes(const std::function<bool(pid_t)>& wanted) {
  std::vector<pid_t> found;
  for (pid_t pid : ports::all_processes()) {
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
