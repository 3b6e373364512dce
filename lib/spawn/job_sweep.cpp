#include "spawn/job_sweep.hpp"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <set>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "ports/process_info.hpp"
#include "spawn/held_process.hpp"

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

// Of a process of this user; in the middle of an exec it shows none for a moment, some never have one.
bool hides_environment(pid_t pid) {
  constexpr pid_t kKernelThreads = 2;
  struct stat owner {};
  const auto stat = ports::read_process_stat(pid);
  return stat && stat->alive() && pid != kKernelThreads && stat->parent != kKernelThreads &&
         ::stat(fmt::format("/proc/{}", pid).c_str(), &owner) == 0 && owner.st_uid == ::geteuid();
}

// For one look at all processes: waits for those between two programs, not long.
class Marked {
 public:
  explicit Marked(const JobMarks& marks) : marks_(marks) {}
  bool operator()(pid_t pid) const {
    if (marks_.empty()) return false;
    std::string environment = ports::environment_of(pid);
    while (environment.empty() && !patience_.passed() && hides_environment(pid)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      environment = ports::environment_of(pid);
    }
    return std::all_of(marks_.begin(), marks_.end(),
                       [&](const std::string& mark) { return holds_entry(environment, mark); });
  }

 private:
  const JobMarks& marks_;
  const Deadline patience_ = Deadline::after(std::chrono::milliseconds(20));
};

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

void wait_for_ends(std::vector<HeldProcess>& held, Deadline deadline) {
  while (!held.empty() && !deadline.passed()) {
    std::vector<const HeldProcess*> all;
    for (const auto& process : held) all.push_back(&process);
    wait_for_an_end(all, deadline);
    std::erase_if(held, [](const HeldProcess& process) { return process.has_ended(); });
  }
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw SystemError("prctl", "PR_SET_CHILD_SUBREAPER");
}

std::vector<pid_t> processes_with(const JobMarks& marks) {
  return living_processes(Marked(marks));
}

size_t sweep_job(const JobMarks& marks, std::chrono::milliseconds patience, bool children_too) {
  using namespace std::chrono_literals;
  const auto ours = [children_too, parent = ::getpid()](pid_t pid, const Marked& marked) {
    return (children_too && is_living_child_of(pid, parent)) || marked(pid);
  };
  std::set<pid_t> signalled;
  Deadline patient = Deadline::after(patience);
  // Bounded: a process in the kernel's uninterruptible sleep does not answer even to SIGKILL.
  for (Deadline give_up = Deadline::after(patience + 5s); !give_up.passed();) {
    if (children_too) reap_zombies();
    std::vector<HeldProcess> held;
    int signal = patient.passed() ? SIGKILL : SIGTERM;
    for (pid_t pid : living_processes([&, look = Marked(marks)](pid_t pid) { return ours(pid, look); })) {
      auto process = HeldProcess::hold(pid);
      if (!process || !ours(pid, Marked(marks))) continue;
      process->signal(signal);
      signalled.insert(pid);
      held.push_back(std::move(*process));
    }
    if (held.empty()) break;
    wait_for_ends(held, signal == SIGTERM ? patient : Deadline::after(200ms));
  }
  if (children_too) reap_zombies();
  return signalled.size();
}

}  // namespace dslaunch::spawn
