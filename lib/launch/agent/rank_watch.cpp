#include "launch/agent/rank_watch.hpp"

#include <unistd.h>

#include <utility>

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kCheckInterval = 2s;
// A longer gap between two looks: this process was stopped, or the machine asleep, so ranks may have been too.
constexpr auto kMaxGap = 10s;

std::chrono::milliseconds time_of(uint64_t ticks) {
  static const long kTicksPerSecond = ::sysconf(_SC_CLK_TCK);
  return std::chrono::milliseconds(static_cast<int64_t>(ticks) * 1000 / kTicksPerSecond);
}

uint64_t difference(uint64_t now, uint64_t before) {
  return now > before ? now - before : 0;
}

// The CPU ticks of the tree since the previous look. A new process has used all its ticks since then.
uint64_t use_of(const std::vector<ports::TreeProcess>& tree, std::map<pid_t, uint64_t>& ticks_before) {
  std::map<pid_t, uint64_t> ticks;
  for (const auto& process : tree) ticks[process.pid] = process.stat.cpu_ticks;
  const auto before = std::exchange(ticks_before, std::move(ticks));
  if (before.empty()) return 0;
  uint64_t used = 0;
  for (const auto& [pid, now] : ticks_before) {
    const auto found = before.find(pid);
    used += difference(now, found == before.end() ? 0 : found->second);
  }
  return used;
}

}  // namespace

void RankWatch::add(int rank, pid_t pid, Time now) {
  ranks_.emplace(rank,
                 Watched{.pid = pid, .window = IdleWindow(now), .tree_ticks = {}, .last_reported = {.rank = rank}});
  if (!last_check_) last_check_ = now;
}

void RankWatch::remove(int rank) {
  ranks_.erase(rank);
}

void RankWatch::on_output(int rank, Time now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  found->second.window.restart(now);
  found->second.has_printed = true;
}

void RankWatch::on_unread(Time now) {
  for (auto& [rank, watched] : ranks_) watched.window.restart(now);
}

Deadline RankWatch::next_check() const {
  return ranks_.empty() || !last_check_ ? Deadline::never() : Deadline::at(*last_check_ + kCheckInterval);
}

std::vector<RankActivity> RankWatch::check(Time now) {
  if (now - std::exchange(last_check_, now).value_or(now) > kMaxGap) on_unread(now);
  std::vector<Watched*> quiet;
  std::vector<pid_t> roots;
  std::vector<RankActivity> changed;
  const auto report = [&](Watched& rank, RankActivity activity) {
    activity.rank = rank.last_reported.rank;
    if (activity == rank.last_reported) return;
    rank.last_reported = activity;
    changed.push_back(activity);
  };
  for (auto& [number, rank] : ranks_) {
    if (computes_itself(rank, now)) {
      report(rank, {});
      continue;
    }
    quiet.push_back(&rank);
    roots.push_back(rank.pid);
  }
  if (quiet.empty()) return changed;
  const Trees trees = ports::process_trees(roots);
  for (Watched* rank : quiet) {
    const auto tree = trees.find(rank->pid);
    report(*rank, classify(*rank, tree == trees.end() ? std::vector<ports::TreeProcess>() : tree->second, now));
  }
  return changed;
}

// True: its other processes need not be read.
bool RankWatch::computes_itself(Watched& rank, Time now) {
  const auto stat = ports::read_process_stat(rank.pid);
  const uint64_t ticks = stat ? stat->cpu_ticks : 0;
  const auto used = time_of(difference(ticks, std::exchange(rank.own_ticks, ticks)));
  const bool has_printed = std::exchange(rank.has_printed, false);
  if (!has_printed && used < std::chrono::milliseconds(kCheckInterval) / 100) return false;
  rank.tree_ticks.clear();
  rank.window.add(now, used);
  return true;
}

RankActivity RankWatch::classify(Watched& rank, const std::vector<ports::TreeProcess>& tree, Time now) {
  rank.window.add(now, time_of(use_of(tree, rank.tree_ticks)));
  if (!rank.window.is_idle(now)) return {};
  RankActivity activity{.state = RankState::kIdle};
  for (const auto& process : tree) {
    const char state = process.stat.state;
    if (state == 'T' || state == 't') return {.state = RankState::kStopped, .pid = process.pid};
    if (state == 'D') activity = {.state = RankState::kBlocked, .pid = process.pid};
  }
  return activity;
}

}  // namespace dslaunch::launch
