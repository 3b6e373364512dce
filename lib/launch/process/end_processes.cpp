#include "launch/process/end_processes.hpp"

#include <cerrno>
#include <csignal>
#include <optional>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "spawn/held_process.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// SIGKILL works at once except for a process inside an uninterruptible call.
constexpr auto kTimeoutAfterKill = 5000ms;

struct Target {
  ports::ProcessIdentity identity;
  std::optional<spawn::HeldProcess> process;  // set while open()
  EndOutcome outcome;
  bool open() const { return outcome.text.empty(); }
};

Target hold(const ports::ProcessIdentity& identity) {
  Target target{identity, spawn::HeldProcess::hold(identity.pid), {}};
  if (!target.process || target.process->identity() != identity) target.outcome = {true, "had ended already"};
  return target;
}

void signal(Target& target, int number) {
  if (!target.open() || target.process->has_ended()) return;
  if (!target.process->signal(number) && errno != ESRCH) {
    target.outcome = {false, fmt::format("cannot be signalled: {}", describe_errno(errno))};
  }
}

void signal_all(std::vector<Target>& targets, int number) {
  for (auto& target : targets) signal(target, number);
}

void wait_for_all(std::vector<Target>& targets, std::chrono::milliseconds timeout, const char* how) {
  for (Deadline deadline = Deadline::after(timeout);;) {
    std::vector<const spawn::HeldProcess*> left;
    for (auto& target : targets) {
      if (target.open() && target.process->has_ended()) target.outcome = {true, how};
      if (target.open()) left.push_back(&*target.process);
    }
    if (left.empty() || deadline.passed()) return;
    spawn::wait_for_an_end(left, deadline);
  }
}

// ", in nfs_wait_bit_killable"
std::string in_wait_channel(pid_t pid) {
  const std::string channel = ports::wait_channel(pid);
  return channel.empty() ? std::string() : ", in " + channel;
}

std::string why_still_there(const ports::ProcessIdentity& identity) {
  auto info = ports::read_process(identity.pid);
  if (info && info->state == 'D') {
    return fmt::format(
        "does not end even with SIGKILL: it waits in the kernel (state D{}) for a disk, a network file system or "
        "a driver; it ends when that answers, or with a reboot",
        in_wait_channel(identity.pid));
  }
  return fmt::format("is still running after SIGKILL (state {}{})", info ? info->state : '?',
                     in_wait_channel(identity.pid));
}

}  // namespace

std::vector<EndOutcome> end_processes(const std::vector<ports::ProcessIdentity>& processes,
                                      std::chrono::milliseconds timeout) {
  spawn::raise_descriptor_limit();  // one for each
  std::vector<Target> targets;
  targets.reserve(processes.size());
  for (const auto& identity : processes) targets.push_back(hold(identity));
  signal_all(targets, SIGTERM);
  signal_all(targets, SIGCONT);  // a process stopped by SIGSTOP would not receive SIGTERM
  wait_for_all(targets, timeout, "ended");
  signal_all(targets, SIGKILL);
  wait_for_all(targets, kTimeoutAfterKill, "killed");
  std::vector<EndOutcome> outcomes;
  for (auto& target : targets) {
    if (target.open()) target.outcome = {false, why_still_there(target.identity)};
    outcomes.push_back(std::move(target.outcome));
  }
  return outcomes;
}

}  // namespace dslaunch::launch
