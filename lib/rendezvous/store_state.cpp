#include "rendezvous/store_state.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/parse_int.hpp"

namespace dslaunch::rendezvous {

namespace {

constexpr size_t kMaxStoredBytes = 512u << 20;
constexpr size_t kMaxRanksDescribed = 8;

Answer granted(std::string body) {
  return {wire::Status::kOk, std::move(body)};
}

Answer refused(std::string text) {
  return {wire::Status::kRefused, std::move(text)};
}

}  // namespace

std::string encode_lost_rank(const LostRank& lost) {
  return wire::Writer()
      .u32(static_cast<uint32_t>(lost.rank))
      .text(std::string_view(lost.host).substr(0, wire::kMaxTextBytes))
      .text(std::string_view(lost.reason).substr(0, wire::kMaxTextBytes))
      .take();
}

LostRank decode_lost_rank(const std::string& body) {
  wire::Reader reader(body);
  LostRank lost;
  lost.rank = static_cast<int>(reader.u32());
  lost.host = reader.text(wire::kMaxTextBytes);
  lost.reason = reader.text(wire::kMaxTextBytes);
  reader.expect_end();
  return lost;
}

StoreState::StoreState(int world_size, std::vector<std::string> rank_hosts) : ranks_(static_cast<size_t>(world_size)) {
  for (size_t i = 0; i < rank_hosts.size() && i < ranks_.size(); ++i) ranks_[i].host = std::move(rank_hosts[i]);
}

void StoreState::join(int rank, const std::string& host) {
  Rank& joining = ranks_[rank];
  joining.presence = Presence::kConnected;
  joining.reason.clear();
  lost_.erase(rank);
  left_.erase(rank);
  if (joining.host.empty()) joining.host = host;
}

void StoreState::leave(int rank) {
  if (ranks_[rank].presence != Presence::kConnected) return;
  ranks_[rank].presence = Presence::kLeft;
  left_.insert(rank);
  std::vector<Ticket> hopeless;
  for (const auto& [ticket, wait] : waits_) {
    if (wait.rank == rank || (wait.is_barrier && is_whole_world(wait.count))) hopeless.push_back(ticket);
  }
  answer_all(hopeless,
             {wire::Status::kPeerLost, encode_lost_rank({rank, ranks_[rank].host, "has already left the job"})});
}

std::optional<LostRank> StoreState::lose(int rank, const std::string& reason) {
  Rank& lost = ranks_[rank];
  if (lost.presence != Presence::kConnected) return std::nullopt;
  lost.presence = Presence::kLost;
  lost_.insert(rank);
  lost.reason = reason;
  std::vector<Ticket> tickets;
  for (const auto& [ticket, wait] : waits_) tickets.push_back(ticket);
  LostRank news{rank, lost.host, reason};
  answer_all(tickets, {wire::Status::kPeerLost, encode_lost_rank(news)});
  return news;
}

std::vector<LostRank> StoreState::lost_ranks() const {
  std::vector<LostRank> out;
  for (int rank : lost_) out.push_back({rank, ranks_[rank].host, ranks_[rank].reason});
  return out;
}

std::optional<Answer> StoreState::make_room(const std::string& key, size_t value_bytes) {
  auto old = values_.find(key);
  size_t freed = old == values_.end() ? 0 : key.size() + old->second.size();
  size_t total = stored_bytes_ - freed + key.size() + value_bytes;
  if (total > kMaxStoredBytes) {
    return refused(fmt::format("the store is full: key '{}' with {} bytes would pass its limit of {} MiB", key,
                               value_bytes, kMaxStoredBytes >> 20));
  }
  stored_bytes_ = total;
  return std::nullopt;
}

Answer StoreState::set(const std::string& key, std::string value) {
  if (auto full = make_room(key, value.size())) return *full;
  values_[key] = std::move(value);
  answer_waits_for_key(key);
  return {};
}

Answer StoreState::try_get(const std::string& key) const {
  auto found = values_.find(key);
  if (found == values_.end()) return granted(wire::Writer().u8(0).text("").take());
  return granted(wire::Writer().u8(1).text(found->second).take());
}

Answer StoreState::add(const std::string& key, int64_t amount) {
  auto found = values_.find(key);
  auto before = found == values_.end() ? std::optional<int64_t>(0) : parse_int<int64_t>(found->second);
  int64_t after = 0;
  if (!before) return refused(fmt::format("key '{}' does not hold a number", key));
  if (__builtin_add_overflow(*before, amount, &after)) return refused(fmt::format("counter '{}' overflows", key));
  if (Answer answer = set(key, std::to_string(after)); answer.status != wire::Status::kOk) return answer;
  return granted(wire::Writer().i64(after).take());
}

Answer StoreState::compare_and_set(const std::string& key, const std::string& expected, const std::string& desired) {
  auto found = values_.find(key);
  bool matches = found == values_.end() ? expected.empty() : found->second == expected;
  if (matches) {
    if (Answer answer = set(key, desired); answer.status != wire::Status::kOk) return answer;
    return granted(wire::Writer().text(desired).take());
  }
  return granted(wire::Writer().text(found == values_.end() ? std::string() : found->second).take());
}

Answer StoreState::erase(const std::string& prefix) {
  if (prefix.empty()) return refused("erase with an empty prefix would erase every key");
  size_t num_erased = std::erase_if(values_, [&](const auto& entry) {
    const auto& [key, value] = entry;
    if (!key.starts_with(prefix)) return false;
    stored_bytes_ -= key.size() + value.size();
    return true;
  });
  return granted(wire::Writer().u64(num_erased).take());
}

StoreState::Ticket StoreState::get(int rank, const std::string& key, Answered answered) {
  auto found = values_.find(key);
  if (found != values_.end()) {
    answered(granted(wire::Writer().text(found->second).take()));
    return 0;
  }
  if (!lost_.empty()) return answered(lost_answer()), 0;
  return begin_wait({rank, false, key, 0, std::move(answered)});
}

std::optional<Answer> StoreState::refuse_barrier(int rank, const std::string& name, int count) const {
  if (count < 1 || count > static_cast<int>(ranks_.size())) {
    return refused(fmt::format("barrier '{}' asks for {} ranks in a world of {}", name, count, ranks_.size()));
  }
  if (!lost_.empty()) return lost_answer();
  if (auto found = rounds_.find(name); found != rounds_.end()) {
    const auto& [agreed, by_rank] = found->second;
    if (by_rank.contains(rank)) {
      return refused(fmt::format("rank {} is already waiting at barrier '{}'", rank, name));
    }
    if (agreed != count) {
      return refused(fmt::format("barrier '{}': rank {} expects {} ranks, rank {} expected {}", name, rank, count,
                                 by_rank.begin()->first, agreed));
    }
  }
  if (!is_whole_world(count) || left_.empty()) return std::nullopt;
  int gone = *left_.begin();
  return Answer{wire::Status::kPeerLost, encode_lost_rank({gone, ranks_[gone].host, "has already left the job"})};
}

StoreState::Ticket StoreState::barrier(int rank, const std::string& name, int count, Answered answered) {
  if (auto refusal = refuse_barrier(rank, name, count)) return answered(*refusal), 0;
  auto found = rounds_.find(name);
  int num_there = found == rounds_.end() ? 0 : static_cast<int>(found->second.by_rank.size());
  if (num_there + 1 < count) return begin_wait({rank, true, name, count, std::move(answered)});
  std::vector<Ticket> round;
  if (found != rounds_.end()) {
    for (const auto& [other, ticket] : found->second.by_rank) round.push_back(ticket);
  }
  answer_all(round, {});
  answered({});
  return 0;
}

StoreState::Ticket StoreState::begin_wait(Wait wait) {
  Ticket ticket = next_ticket_++;
  if (wait.is_barrier) {
    Round& round = rounds_[wait.name];
    round.count = wait.count;
    round.by_rank.emplace(wait.rank, ticket);
  } else {
    waits_for_key_[wait.name].insert(ticket);
  }
  waits_.emplace(ticket, std::move(wait));
  return ticket;
}

StoreState::Wait StoreState::end_wait(std::map<Ticket, Wait>::node_type node) {
  Wait wait = std::move(node.mapped());
  if (wait.is_barrier) {
    auto round = rounds_.find(wait.name);
    round->second.by_rank.erase(wait.rank);
    if (round->second.by_rank.empty()) rounds_.erase(round);
  } else {
    auto waits = waits_for_key_.find(wait.name);
    waits->second.erase(node.key());
    if (waits->second.empty()) waits_for_key_.erase(waits);
  }
  return wait;
}

void StoreState::expire(Ticket ticket, double waited_seconds) {
  auto found = waits_.find(ticket);
  if (found == waits_.end()) return;
  Answer answer{wire::Status::kTimeout, timeout_text(found->second, waited_seconds)};
  answer_all({ticket}, answer);
}

void StoreState::answer_all(const std::vector<Ticket>& tickets, const Answer& answer) {
  for (Ticket ticket : tickets) {
    auto node = waits_.extract(ticket);
    if (!node.empty()) end_wait(std::move(node)).answered(answer);
  }
}

void StoreState::answer_waits_for_key(const std::string& key) {
  auto found = waits_for_key_.find(key);
  if (found == waits_for_key_.end()) return;
  std::vector<Ticket> tickets(found->second.begin(), found->second.end());
  answer_all(tickets, granted(wire::Writer().text(values_[key]).take()));
}

Answer StoreState::lost_answer() const {
  return {wire::Status::kPeerLost, encode_lost_rank(lost_ranks().front())};
}

std::vector<int> StoreState::ranks_at_barrier(const std::string& name) const {
  std::vector<int> out;
  if (auto found = rounds_.find(name); found != rounds_.end()) {
    for (const auto& [rank, ticket] : found->second.by_rank) out.push_back(rank);
  }
  return out;
}

std::string StoreState::describe(int rank) const {
  const Rank& it = ranks_[rank];
  std::string where = it.host.empty() ? "" : " on " + it.host;
  switch (it.presence) {
    case Presence::kNeverConnected:
      return fmt::format("rank {}{} never connected", rank, where);
    case Presence::kConnected:
      return fmt::format("rank {}{} is connected but has not arrived yet", rank, where);
    case Presence::kLeft:
      return fmt::format("rank {}{} has left", rank, where);
    case Presence::kLost:
      return fmt::format("rank {}{} is lost: {}", rank, where, it.reason);
  }
  return {};
}

std::string StoreState::describe_missing(const std::vector<int>& ranks) const {
  std::vector<std::string> details;
  for (size_t i = 0; i < ranks.size() && i < kMaxRanksDescribed; ++i) details.push_back(describe(ranks[i]));
  if (ranks.size() > kMaxRanksDescribed)
    details.push_back(fmt::format("and {} more", ranks.size() - kMaxRanksDescribed));
  std::vector<int> named(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(std::min<size_t>(ranks.size(), 64)));
  return fmt::format("{} {}{} {} not arrived ({})", ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                     ranks.size() > named.size() ? ", ..." : "", ranks.size() == 1 ? "has" : "have",
                     fmt::join(details, "; "));
}

std::string StoreState::timeout_text(const Wait& wait, double waited_seconds) const {
  std::vector<int> missing;
  auto arrived = wait.is_barrier ? ranks_at_barrier(wait.name) : std::vector<int>{};
  bool whole_world = wait.is_barrier && is_whole_world(wait.count);
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    // Only the callers know the members of a smaller group, or which rank sets a key; absent ranks are worth naming
    // anyway.
    bool is_missing = whole_world ? !std::binary_search(arrived.begin(), arrived.end(), rank)
                                  : ranks_[rank].presence != Presence::kConnected;
    if (is_missing) missing.push_back(rank);
  }
  std::string who =
      missing.empty() ? fmt::format("all {} ranks are connected", ranks_.size()) : describe_missing(missing);
  if (!wait.is_barrier) return fmt::format("key '{}' was not set within {:.1f} s: {}", wait.name, waited_seconds, who);
  return fmt::format("barrier '{}' was not complete within {:.1f} s, {} of {} ranks have arrived{}: {}", wait.name,
                     waited_seconds, arrived.size(), wait.count,
                     whole_world ? "" : fmt::format(" ({})", fmt::join(arrived, ", ")), who);
}

}  // namespace dslaunch::rendezvous
