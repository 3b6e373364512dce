#include "launch/supervisor/stall_watch.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "launch/agent/idle_window.hpp"
#include "launch/terminal/line_deduplicator.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// From the first report of an idle rank to the line: the other ranks are examined every 2 s.
constexpr milliseconds kMargin = 3s;
constexpr std::array<milliseconds, 2> kToldAgainAfter{5min, 15min};
// A job that pauses repeatedly does so on purpose; then only longer pauses are reported.
constexpr size_t kStallsBeforeDoubling = 3;
constexpr milliseconds kMaxQuiet = 5min;
// A rank that turns idle this long after the last line starts another stall: some ranks may idle all the time.
constexpr milliseconds kNewStallAfter = 5min;
constexpr size_t kMaxNamed = 8;

milliseconds quiet_time(size_t num_stalls_over) {
  milliseconds quiet = IdleWindow::kLength;
  for (size_t i = kStallsBeforeDoubling; i < num_stalls_over && quiet < kMaxQuiet; ++i) quiet *= 2;
  return std::min(quiet, kMaxQuiet);
}

std::string age_text(milliseconds age) {
  if (age < 2min) return fmt::format("{} s", age / 1s);
  return fmt::format("{} min", age / 1min);
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", rank_ranges(ranks));
}

// "rank 1 (node2) stopped, ..."
std::string one_text(const RankActivity& activity, const RankRecord& record) {
  const auto whose = fmt::format("rank {} ({})", activity.rank, record.host);
  if (activity.state == RankState::kStopped) {
    return fmt::format("{} stopped, e.g. by SIGSTOP or a debugger ('kill -CONT {}' on its host continues it)", whose,
                       activity.pid);
  }
  return fmt::format("{} waiting in the kernel, e.g. for a disk, a network file system or a driver (process {})", whose,
                     activity.pid);
}

std::string busy_text(const std::vector<int>& busy, const std::vector<RankRecord>& records) {
  const RankRecord& first = records[static_cast<size_t>(busy[0])];
  if (busy.size() == 1) {
    return fmt::format("rank {} ({}, process {}) busy: the other ranks may be waiting for it", busy[0], first.host,
                       first.pid);
  }
  return fmt::format("{} busy: the other ranks may be waiting for one of them", ranks_text(busy));
}

}  // namespace

void StallWatch::begin(Time now) {
  is_stalled_ = true;
  since_ = now - IdleWindow::kLength;
  num_told_ = 0;
  next_line_ = since_ + quiet_time(num_stalls_over_) + kMargin;
}

void StallWatch::on_change(Time now) {
  if (quiet_.empty()) {
    if (is_stalled_ && num_told_ > 0) ++num_stalls_over_;
    is_stalled_ = false;
    next_line_ = Time::max();
    return;
  }
  const bool is_another = num_told_ > 0 && quiet_.size() > num_quiet_told_ && now - last_line_ >= kNewStallAfter;
  if (!is_stalled_ || is_another) begin(now);
}

void StallWatch::take(const RankActivity& activity, Time now) {
  if (activity.state == RankState::kBusy) {
    quiet_.erase(activity.rank);
  } else {
    quiet_[activity.rank] = activity;
  }
  on_change(now);
}

void StallWatch::rank_ended(int rank, Time now) {
  quiet_.erase(rank);
  on_change(now);
}

// "ranks 0-1 idle; rank 2 (node2) stopped, ...; rank 3 (node2, process 4711) busy: ..."
std::string StallWatch::states_text(const std::vector<RankRecord>& records) const {
  std::vector<int> idle, busy;
  std::vector<std::string> held;
  for (const auto& record : records) {
    const auto found = quiet_.find(record.rank);
    if (found == quiet_.end()) {
      if (!record.cause) busy.push_back(record.rank);
    } else if (found->second.state == RankState::kIdle) {
      idle.push_back(record.rank);
    } else {
      held.push_back(one_text(found->second, record));
    }
  }
  if (held.size() > kMaxNamed) {
    const size_t num_left = held.size() - kMaxNamed;
    held.resize(kMaxNamed);
    held.push_back(fmt::format("{} more stopped or waiting in the kernel", num_left));
  }
  std::vector<std::string> texts;
  if (!idle.empty()) texts.push_back(ranks_text(idle) + " idle");
  texts.insert(texts.end(), held.begin(), held.end());
  if (!busy.empty()) texts.push_back(busy_text(busy, records));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::optional<std::string> StallWatch::due(const std::vector<RankRecord>& records, const std::string& job_id,
                                           Time now) {
  if (now < next_line_) return std::nullopt;
  last_line_ = now;
  num_quiet_told_ = quiet_.size();
  next_line_ = num_told_ < kToldAgainAfter.size() ? since_ + kToldAgainAfter[num_told_] : Time::max();
  ++num_told_;
  const auto num_running = std::count_if(records.begin(), records.end(), [](const auto& each) { return !each.cause; });
  return fmt::format(
      "{} of {} ranks used less than 1% of a core and printed nothing for {}: {}; 'dslaunch stacks {}' shows where "
      "each is",
      quiet_.size(), num_running, age_text(std::chrono::duration_cast<milliseconds>(now - since_)),
      states_text(records), job_id);
}

}  // namespace dslaunch::launch
