#include "comm/hang_report.hpp"

#include <algorithm>
#include <set>

#include "base/byte_fields.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxDescribed = 4;

uint64_t last_call(const std::optional<RankReport>& report, const std::string& group) {
  if (!report) return 0;
  const auto found = report->last_calls.find(group);
  return found == report->last_calls.end() ? 0 : found->second;
}

bool is_same_call(const RankWait& a, const RankWait& b) {
  return a.group == b.group && a.number == b.number;
}

// At most one wait holds the host: the training thread is in it.
const RankWait* blocking_wait(const std::optional<RankReport>& report) {
  if (!report) return nullptr;
  const auto& waits = report->waits;
  const auto found = std::find_if(waits.begin(), waits.end(), [](const RankWait& wait) { return wait.blocks_host; });
  return found == waits.end() ? nullptr : &*found;
}

const RankWait* pending_exchange(const std::optional<RankReport>& report) {
  if (!report) return nullptr;
  const auto& waits = report->waits;
  const auto found =
      std::find_if(waits.begin(), waits.end(), [](const RankWait& wait) { return !wait.messages.empty(); });
  return found == waits.end() ? nullptr : &*found;
}

// The other ranks of a wait for which `is_one` holds: it gets the rank, and the sequence and number by which the rank's
// report shows whether it has arrived.
std::set<int> participants_of(
    const RankWait& wait, int rank,
    const std::function<bool(int rank, const std::string& sequence, uint64_t number)>& is_one) {
  std::set<int> found;
  for (const auto& [sequence, number, peer] : wait.messages) {
    if (is_one(peer, sequence, number)) found.insert(peer);
  }
  if (!wait.messages.empty()) return found;
  for (int member : wait.members) {
    if (member != rank && is_one(member, wait.group, wait.number)) found.insert(member);
  }
  return found;
}

bool is_still_waiting(const std::optional<RankReport>& before, const std::optional<RankReport>& now,
                      milliseconds min_age) {
  const RankWait *first = blocking_wait(before), *second = blocking_wait(now);
  return first && second && is_same_call(*first, *second) && second->age >= min_age &&
         now->heartbeat > before->heartbeat;
}

std::string state_text(char state, int64_t pid) {
  if (state == 'T') return fmt::format("it is stopped, as by SIGSTOP ('kill -CONT {}' resumes it)", pid);
  if (state == 't') return "it is stopped in a debugger";
  if (state == 'D') return "it is blocked in the kernel, for example on a disk, a network file system or a driver";
  return {};
}

// Stopped, or held by a debugger. Excludes a rank that waits for a disk, which is blocked only briefly.
bool is_stopped(std::optional<char> state) {
  return state == 'T' || state == 't';
}

std::string name_of(int rank, const RankReport& report) {
  return fmt::format("rank {} ({}, process {}{}{})", rank, report.host, report.pid, report.place.empty() ? "" : ", ",
                     report.place);
}

// Describes the first few ranks.
std::string join_described(const std::vector<int>& ranks, const std::function<std::string(int rank)>& describe) {
  std::vector<std::string> texts;
  for (int rank : ranks) {
    if (texts.size() == kMaxDescribed) {
      texts.push_back(fmt::format("and {} more", ranks.size() - kMaxDescribed));
      break;
    }
    texts.push_back(describe(rank));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

bool is_reporting(const std::optional<RankReport>& before, const RankReport& now) {
  return before && now.heartbeat > before->heartbeat;
}

// Describes what a rank that others wait for is doing.
std::string describe_activity(const std::optional<RankReport>& before, const RankReport& now, const StateOf& state_of) {
  const auto state = state_of(now);
  if (auto text = state ? state_text(*state, now.pid) : std::string(); !text.empty()) return text;
  const bool stopped_reporting = !is_reporting(before, now);
  if (stopped_reporting && now.heartbeat <= 1) return "it has not arrived and has never reported";
  if (stopped_reporting) return "it has not arrived and has stopped reporting";
  if (!now.waits.empty()) return fmt::format("it is itself waiting in {}", now.waits.front().what);
  if (now.activity.empty()) return "it is busy";
  return fmt::format("it has been busy with {} for {}", now.activity, age_text(now.activity_age));
}

}  // namespace

std::string encode(const RankReport& report) {
  ByteWriter out;
  const auto text = [&](const std::string& value) { out.text(std::string_view(value).substr(0, kMaxText)); };
  const auto time = [&](milliseconds value) { out.i64(value.count()); };
  text(report.host);
  text(report.place);
  out.i64(report.pid).u64(report.start_ticks).u64(report.heartbeat);
  text(report.activity);
  time(report.activity_age);
  out.count(report.last_calls.size());
  for (const auto& [group, number] : report.last_calls) {
    text(group);
    out.u64(number);
  }
  out.count(report.waits.size());
  for (const auto& wait : report.waits) {
    text(wait.group);
    out.u64(wait.number);
    text(wait.what);
    text(wait.advice);
    out.count(wait.members.size());
    for (int member : wait.members) out.u32(static_cast<uint32_t>(member));
    time(wait.age);
    out.u8(wait.blocks_host ? 1 : 0).u8(wait.is_on_device ? 1 : 0);
    time(wait.own_timeout);
    out.count(wait.messages.size());
    for (const auto& message : wait.messages) {
      text(message.sequence);
      out.u64(message.number).u32(static_cast<uint32_t>(message.peer));
    }
  }
  return out.take();
}

RankReport decode(std::string_view bytes) {
  ByteReader in(bytes);
  const auto text = [&] { return in.text(kMaxText); };
  const auto time = [&] { return milliseconds(in.i64()); };
  RankReport out;
  out.host = text();
  out.place = text();
  out.pid = in.i64();
  out.start_ticks = in.u64();
  out.heartbeat = in.u64();
  out.activity = text();
  out.activity_age = time();
  for (uint32_t left = in.u32(); left > 0; --left) {
    auto group = text();
    out.last_calls[std::move(group)] = in.u64();
  }
  for (uint32_t left = in.u32(); left > 0; --left) {
    RankWait wait;
    wait.group = text();
    wait.number = in.u64();
    wait.what = text();
    wait.advice = text();
    for (uint32_t members = in.u32(); members > 0; --members) wait.members.push_back(static_cast<int>(in.u32()));
    wait.age = time();
    wait.blocks_host = in.u8() != 0;
    wait.is_on_device = in.u8() != 0;
    wait.own_timeout = time();
    for (uint32_t messages = in.u32(); messages > 0; --messages) {
      AwaitedMessage message;
      message.sequence = text();
      message.number = in.u64();
      message.peer = static_cast<int>(in.u32());
      wait.messages.push_back(std::move(message));
    }
    out.waits.push_back(std::move(wait));
  }
  in.expect_end();
  return out;
}

std::vector<int> missing_from(const RankWait& wait, int rank, const RankReports& reports) {
  const auto missing = participants_of(wait, rank, [&](int member, const std::string& sequence, uint64_t number) {
    return last_call(reports.at(static_cast<size_t>(member)), sequence) < number;
  });
  return {missing.begin(), missing.end()};
}

std::vector<int> root_missing(const RankWait& wait, int rank, const RankReports& reports) {
  std::set<int> seen{rank}, roots;
  std::vector<int> left = missing_from(wait, rank, reports);
  while (!left.empty()) {
    const int next = left.back();
    left.pop_back();
    if (!seen.insert(next).second) continue;
    const auto& report = reports.at(static_cast<size_t>(next));
    const RankWait* its_wait = pending_exchange(report);
    const auto its_missing = its_wait ? missing_from(*its_wait, next, reports) : std::vector<int>{};
    if (its_missing.empty()) roots.insert(next);
    left.insert(left.end(), its_missing.begin(), its_missing.end());
  }
  return {roots.begin(), roots.end()};
}

std::vector<int> find_deadlocked(const RankReports& before, const RankReports& now, milliseconds min_age) {
  std::map<int, std::vector<int>> blocked;  // rank -> the ranks that it waits for
  for (size_t i = 0; i < now.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (is_still_waiting(before[i], now[i], min_age)) blocked[rank] = missing_from(*blocking_wait(now[i]), rank, now);
  }
  // A rank that waits for none of the held ranks continues when the others arrive, and may then release held ranks.
  const auto may_continue = [&](const auto& waiting_rank) {
    const auto& missing = waiting_rank.second;
    return std::none_of(missing.begin(), missing.end(), [&](int other) { return blocked.contains(other); });
  };
  while (std::erase_if(blocked, may_continue) > 0) {
  }
  std::vector<int> ranks;
  ranks.reserve(blocked.size());
  for (const auto& [rank, missing] : blocked) ranks.push_back(rank);
  return ranks;
}

std::string describe_missing(std::vector<int> missing, const RankReports& before, const RankReports& now,
                             const StateOf& state_of) {
  std::stable_partition(missing.begin(), missing.end(), [&](int rank) {
    const auto& report = now.at(static_cast<size_t>(rank));
    return !report || report->waits.empty() || !is_reporting(before.at(static_cast<size_t>(rank)), *report);
  });
  return join_described(missing, [&](int rank) {
    const auto& report = now.at(static_cast<size_t>(rank));
    if (!report) return fmt::format("rank {}: it has not arrived and has never reported", rank);
    return fmt::format("{}: {}", name_of(rank, *report),
                       describe_activity(before.at(static_cast<size_t>(rank)), *report, state_of));
  });
}

std::vector<int> frozen_members(const RankWait& wait, int rank, const RankReports& before, const RankReports& now,
                                const StateOf& state_of) {
  const auto frozen = participants_of(wait, rank, [&](int member, const std::string& sequence, uint64_t number) {
    const auto index = static_cast<size_t>(member);
    if (last_call(now.at(index), sequence) < number) return false;
    return is_stopped(state_of(*now[index])) || !is_reporting(before.at(index), *now[index]);
  });
  return {frozen.begin(), frozen.end()};
}

std::string describe_frozen(const std::vector<int>& frozen, const RankReports& now, const StateOf& state_of) {
  return join_described(frozen, [&](int rank) {
    const RankReport& report = *now.at(static_cast<size_t>(rank));
    const auto state = state_of(report);
    auto text = state ? state_text(*state, report.pid) : std::string();
    if (text.empty()) text = "it has stopped reporting: it is frozen, or its host does not answer";
    return fmt::format("{}, which has arrived: {}", name_of(rank, report), text);
  });
}

std::string describe_deadlock(const std::vector<int>& ranks, const RankReports& reports) {
  return join_described(ranks, [&](int rank) {
    const RankWait& wait = *blocking_wait(reports.at(static_cast<size_t>(rank)));
    return fmt::format("rank {} is waiting in {} for rank {}", rank, wait.what,
                       fmt::join(missing_from(wait, rank, reports), ", "));
  });
}

std::string age_text(milliseconds age) {
  const double seconds = static_cast<double>(age.count()) / 1000;
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  return seconds < 300 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.3g} min", seconds / 60);
}

}  // namespace dslaunch::comm
