#include "spawn/process_cleanup.hpp"

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

// Whether a process of this user shows no environment: in the middle of an exec briefly, in some processes always.
bool hides_environment(pid_t pid) {
  constexpr pid_t kKernelThreads = 2;
  struct stat owner {};
  const auto stat = ports::read_process_stat(pid);
  return stat && stat->alive() && pid != kKernelThreads && stat->parent != kKernelThreads &&
         ::stat(fmt::format("/proc/{}", pid).c_str(), &owner) == 0 && owner.st_uid == ::geteuid();
}

enum class Verdict { kOurs, kNotOurs, kHidden };  // kHidden: may be between two programs; the next check may show it

Verdict look_for(const JobTags& tags, pid_t pid) {
  if (tags.empty()) return Verdict::kNotOurs;
  const std::string environment = ports::environment_of(pid);
  if (environment.empty() && hides_environment(pid)) return Verdict::kHidden;
  const bool has_all =
      std::all_of(tags.begin(), tags.end(), [&](const std::string& tag) { return holds_entry(environment, tag); });
  return has_all ? Verdict::kOurs : Verdict::kNotOurs;
}

bool is_living_child_of(pid_t pid, pid_t parent) {
  auto stat = ports::read_process_stat(pid);
  return stat && stat->alive() && stat->parent == parent;
}

// Returns the pids that are `ours`. Hidden processes are checked again for a while, all in turn: some never show an
// environment.
std::vector<pid_t> select(std::vector<pid_t> pids, const std::function<Verdict(pid_t)>& ours) {
  std::vector<pid_t> found;
  const auto decide = [&](pid_t pid) {
    const Verdict verdict = ours(pid);
    if (verdict == Verdict::kOurs) found.push_back(pid);
    return verdict != Verdict::kHidden;
  };
  std::erase_if(pids, decide);
  for (const auto timeout = Deadline::after(std::chrono::milliseconds(20)); !pids.empty() && !timeout.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::erase_if(pids, decide);
  }
  return found;
}

// All processes except init and this one.
std::vector<pid_t> other_processes() {
  auto pids = ports::all_processes();
  std::erase_if(pids, [own = ::getpid()](pid_t pid) { return pid <= 1 || pid == own; });
  return pids;
}

void reap_zombies() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

std::vector<StuckProcess> stuck_among(const std::vector<HeldProcess>& held) {
  std::vector<StuckProcess> stuck;
  for (const auto& process : held) {
    if (auto found = inspect_stuck(process.identity().pid)) stuck.push_back(std::move(*found));
  }
  return stuck;
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

std::vector<pid_t> processes_with(const JobTags& tags) {
  return select(other_processes(), [&](pid_t pid) { return look_for(tags, pid); });
}

CleanupResult cleanup_job(const JobTags& tags, std::chrono::milliseconds timeout, bool children_too,
                          const std::set<pid_t>& exempt) {
  using namespace std::chrono_literals;
  const auto ours = [&, parent = ::getpid()](pid_t pid) {
    if (exempt.contains(pid)) return Verdict::kNotOurs;
    return children_too && is_living_child_of(pid, parent) ? Verdict::kOurs : look_for(tags, pid);
  };
  std::set<pid_t> signalled;
  std::vector<HeldProcess> held;
  Deadline patient = Deadline::after(timeout);
  // Bounded: a process in uninterruptible sleep in the kernel does not react even to SIGKILL.
  for (Deadline give_up = Deadline::after(timeout + 5s); !give_up.passed();) {
    if (children_too) reap_zombies();
    held.clear();
    int signal = patient.passed() ? SIGKILL : SIGTERM;
    for (pid_t pid : select(other_processes(), ours)) {
      auto process = HeldProcess::hold(pid);
      if (!process || select({pid}, ours).empty()) continue;  // now the pid cannot be another process's
      process->signal(signal);
      signalled.insert(pid);
      held.push_back(std::move(*process));
    }
    if (held.empty()) break;
    wait_for_ends(held, signal == SIGTERM ? patient : Deadline::after(200ms));
  }
  if (children_too) reap_zombies();
  return {signalled.size(), stuck_among(held)};
}

}  // namespace dslaunch::spawn
