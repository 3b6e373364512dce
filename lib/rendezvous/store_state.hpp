// The state of the store: keys, barriers, the presence of each rank, and the pending waits. Uses neither clock nor
// network: the server reports events to it and forwards its answers. One thread.
//
// A lost rank makes every wait fail at once, including future waits: the job cannot continue without the rank, and
// failing early is better than failing at the deadline. Keys stay readable.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/store.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

// kOk: the body that docs/wire.md defines for the request. kTimeout, kRefused: a text. kPeerLost: rank, host, reason.
struct Answer {
  wire::Status status = wire::Status::kOk;
  std::string body;
};

std::string encode_lost_rank(const LostRank& lost);
LostRank decode_lost_rank(const std::string& body);

class StoreState {
 public:
  using Answered = std::function<void(const Answer&)>;
  using Ticket = uint64_t;  // 0: already answered

  StoreState(int world_size, std::vector<std::string> rank_hosts);

  bool is_present(int rank) const { return ranks_[rank].presence == Presence::kConnected; }
  void join(int rank, const std::string& host);
  // The rank finished successfully; a full barrier that still needs this rank fails.
  void leave(int rank);
  // The rank is lost. Fails all waits. Empty when the loss was known or the rank had left.
  std::optional<LostRank> lose(int rank, const std::string& reason);
  std::vector<LostRank> lost_ranks() const;

  Answer set(const std::string& key, std::string value);
  Answer try_get(const std::string& key) const;
  Answer add(const std::string& key, int64_t amount);
  Answer compare_and_set(const std::string& key, const std::string& expected, const std::string& desired);
  Answer erase(const std::string& prefix);

  // These two answer immediately or later.
  Ticket get(int rank, const std::string& key, Answered answered);
  Ticket barrier(int rank, const std::string& name, int count, Answered answered);
  // The time of a wait has passed; unknown tickets (answered meanwhile) are ignored.
  void expire(Ticket ticket, double waited_seconds);

 private:
  enum class Presence { kNeverConnected, kConnected, kLeft, kLost };
  struct Rank {
    Presence presence = Presence::kNeverConnected;
    std::string host;
    std::string reason;
  };
  struct Wait {
    int rank = -1;
    bool is_barrier = false;
    std::string name;  // key or barrier
    int count = 0;     // of a barrier
    Answered answered;
  };

  // Ranks at an incomplete barrier; they agree on the count.
  struct Round {
    int count = 0;
    std::map<int, Ticket> by_rank;
  };

  Ticket begin_wait(Wait wait);
  Wait end_wait(std::map<Ticket, Wait>::node_type node);
  std::optional<Answer> refuse_barrier(int rank, const std::string& name, int count) const;
  Answer lost_answer() const;
  std::string describe(int rank) const;
  std::string describe_missing(const std::vector<int>& ranks) const;
  std::string timeout_text(const Wait& wait, double waited_seconds) const;
  std::vector<int> ranks_at_barrier(const std::string& name) const;
  bool is_whole_world(int count) const { return count == static_cast<int>(ranks_.size()); }
  void answer_all(const std::vector<Ticket>& tickets, const Answer& answer);
  void answer_waits_for_key(const std::string& key);
  std::optional<Answer> make_room(const std::string& key, size_t value_bytes);

  std::vector<Rank> ranks_;
  std::set<int> lost_, left_;  // subsets of the ranks
  std::unordered_map<std::string, std::string> values_;
  size_t stored_bytes_ = 0;
  std::map<Ticket, Wait> waits_;  // in order of arrival
  // The same waits, indexed by what they wait for, so that a request's cost does not grow with unrelated waits.
  std::unordered_map<std::string, std::set<Ticket>> waits_for_key_;
  std::unordered_map<std::string, Round> rounds_;
  Ticket next_ticket_ = 1;
};

}  // namespace dslaunch::rendezvous
