#include "launch/doctor/end_processes.hpp"

#include <poll.h>

#include <cerrno>
#include <csignal>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "spawn/pidfd.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// SIGKILL works at once but for a process inside an uninterruptible call.
constexpr auto kPatienceAfterKill = 5000ms;

struct Target {
  ports::ProcessIdentity identity;
  UniqueFd process;
  EndOutcome outcome;
  bool open() const { return outcome.text.empty(); }
};

bool has_ended(const Target& target) {
  pollfd poll{target.process.get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

Target hold(const ports::ProcessIdentity& identity) {
  Target target{identity, spawn::open_pidfd(identity.pid), {}};
  int error = errno;
  if (!target.process.valid() && error != ESRCH) {
    target.outcome = {false, fmt::format("cannot be reached: pidfd_open: {}", describe_errno(error))};
  } else if (!target.process.valid() || !ports::exists(identity) || has_ended(target)) {
    target.outcome = {true, "had ended already"};
  }
  return target;
}

void signal(Target& target, int number) {
  if (!target.open() || has_ended(target)) return;
  if (!ports::exists(target.identity)) return;
  if (!spawn::signal_pidfd(target.process, number) && errno != ESRCH) {
    target.outcome = {false, fmt::format("may not be signalled: {}", describe_errno(errno))};
  }
}

void signal_all(std::vector<Target>& targets, int number) {
  for (auto& target : targets) signal(target, number);
}

void wait_for_all(std::vector<Target>& targets, std::chrono::milliseconds patience, const char* how) {
  for (Deadline deadline = Deadline::after(patience);;) {
    std::vector<pollfd> polls;
    for (auto& target : targets) {
      if (target.open() && has_ended(target)) target.outcome = {true, how};
      if (target.open()) polls.push_back({target.process.get(), POLLIN, 0});
    }
    if (polls.empty() || deadline.passed()) return;
    ::poll(polls.data(), polls.size(), deadline.poll_timeout());
  }
}

std::string why_still_there(const ports::ProcessIdentity& identity) {
  auto info = ports::read_process(identity.pid);
  if (info && info->state == 'D') {
    return "does not answer even to SIGKILL: it waits inside the kernel (state D), for a disk, a network file system "
           "or "
           "a driver; it goes when that answers, or with a reboot";
  }
  return "is still there after SIGKILL";
}

}  // namespace

std::vector<EndOutcome> end_processes(const std::vector<ports::ProcessIdentity>& processes,
                                      std::chrono::milliseconds patience) {
  std::vector<Target> targets;
  for (const auto& identity : processes) targets.push_back(hold(identity));
  signal_all(targets, SIGTERM);
  signal_all(targets, SIGCONT);  // one that sleeps in SIGSTOP would not hear it
  wait_for_all(targets, patience, "ended");
  signal_all(targets, SIGKILL);
  wait_for_all(targets, kPatienceAfterKill, "killed");
  std::vector<EndOutcome> outcomes;
  for (auto& target : targets) {
    if (target.open()) target.outcome = {false, why_still_there(target.identity)};
    outcomes.push_back(std::move(target.outcome));
  }
  return outcomes;
}

}  // namespace dslaunch::launch
