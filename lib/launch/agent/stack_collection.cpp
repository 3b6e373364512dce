#include "launch/agent/stack_collection.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <variant>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/process/programs.hpp"
#include "launch/stacks/collect_stacks.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// Longer than the collector's own limit, at which it answers with the stacks it has.
constexpr std::chrono::milliseconds kCollectorTime = kToolTime + 5s;

}  // namespace

StackCollection::StackCollection(int64_t request, std::map<int, pid_t> pids)
    : request_(request), pids_(std::move(pids)), deadline_(Deadline::after(kCollectorTime)) {
  if (pids_.empty()) return;
  std::vector<pid_t> numbers;
  for (const auto& [rank, pid] : pids_) numbers.push_back(pid);
  try {
    start(numbers);
  } catch (const Error& error) {  // no descriptor left: the job continues without an answer
    error_ = error.what();
  }
}

void StackCollection::start(const std::vector<pid_t>& numbers) {
  auto started =
      spawn::start_process({.argv = {own_program(), "agent", "--stacks", fmt::format("{}", fmt::join(numbers, ","))},
                            .env = environment_of_this_process(),
                            .cwd = {}});
  if (auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    error_ = cause->hint;
    return;
  }
  process_ = std::move(std::get<spawn::Process>(started));
  process_.err.reset();
  is_reaped_ = false;
}

StackCollection::~StackCollection() {
  if (!is_reaped_) spawn::signal_group(process_, SIGKILL);
}

void StackCollection::on_reaped(pid_t pid) {
  if (pid == process_.pid) is_reaped_ = true;
}

std::optional<RankStacks> StackCollection::poll_once() {
  char buffer[16384];
  while (process_.out.valid()) {
    const ssize_t got = ::read(process_.out.get(), buffer, sizeof buffer);
    if (got > 0) {
      out_.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      process_.out.reset();
    } else {
      break;
    }
  }
  if (process_.out.valid() && !deadline_.passed()) return std::nullopt;
  return answer();
}

RankStacks StackCollection::answer() const {
  RankStacks answer{.request = request_, .stacks = {}, .error = error_};
  if (pids_.empty() || !error_.empty()) return answer;
  const auto stacks = stacks_from_json(out_);
  if (!stacks) {
    answer.error = process_.out.valid()
                       ? fmt::format("the program that reads the stacks timed out after {} s", kCollectorTime / 1s)
                       : "the program that reads the stacks failed";
    return answer;
  }
  for (const auto& [rank, pid] : pids_) {
    const auto found = std::find_if(stacks->begin(), stacks->end(),
                                    [&, number = pid](const auto& each) { return each.pid == number; });
    if (found != stacks->end()) answer.stacks.push_back({rank, found->pid, found->source, found->text, found->note});
  }
  return answer;
}

}  // namespace dslaunch::launch
