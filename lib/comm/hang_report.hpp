// What ranks report about themselves, and the conclusions: which ranks are waited for, what they are doing, and whether
// ranks deadlock. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::comm {

// A message of a pending exchange: the `number`-th that goes from one rank to another.
struct AwaitedMessage {
  std::string sequence;  // its name in last_calls, the same on both ranks
  uint64_t number = 0;
  int peer = 0;  // the other rank, numbered in the world
};

// A call that is pending on a rank, or a barrier outside the collectives.
struct RankWait {
  std::string group;  // the group in whose sequence `number` counts
  uint64_t number = 0;
  std::string what;
  std::string advice;        // what to do if the missing ranks never arrive; may be empty
  std::vector<int> members;  // participating ranks, numbered in the world; of an exchange, unused
  std::chrono::milliseconds age{};
  bool blocks_host = true;    // false: the rank itself may have continued
  bool is_on_device = false;  // it may be waiting for earlier computation
  // If not 0, the wait times out by itself, and no watchdog ends it for lasting too long.
  std::chrono::milliseconds own_timeout{};
  std::vector<AwaitedMessage> messages = {};  // an exchange: it waits for the other ends of these
};

struct RankReport {
  std::string host;
  std::string place;  // in the mesh (comm/mesh.hpp); may be empty
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // of the process, since boot: distinguishes it from a later process with the same pid
  uint64_t heartbeat = 0;    // counts the reports: stops increasing on a stalled rank
  std::string activity;      // "step 12"; may be empty
  std::chrono::milliseconds activity_age{};
  std::map<std::string, uint64_t> last_calls;  // by group; and messages begun, by AwaitedMessage::sequence
  std::vector<RankWait> waits;
};

std::string encode(const RankReport& report);
RankReport decode(std::string_view bytes);  // throws WireError

// By rank of the world; nullopt for a rank that has not reported yet.
using RankReports = std::vector<std::optional<RankReport>>;

// The members that have not made the call in which `rank` waits; of an exchange, the peers that have not made theirs.
std::vector<int> missing_from(const RankWait& wait, int rank, const RankReports& reports);
// The ranks at which a chain of exchanges begins that wait for each other: a missing rank that is itself waiting in an
// exchange is replaced by the ranks that it waits for.
std::vector<int> root_missing(const RankWait& wait, int rank, const RankReports& reports);

// Deadlocked ranks, whose waits can never end since each waits for others of them. They were waiting in the previous
// pass already, and have waited for `min_age`. Empty: some rank may still continue.
std::vector<int> find_deadlocked(const RankReports& before, const RankReports& now, std::chrono::milliseconds min_age);

// The /proc state letter of a process on this host; nullopt when the process is on another host, or gone.
using StateOf = std::function<std::optional<char>(const RankReport&)>;

// "rank 3 (node2, process 1234): it is stopped, ..." for each, the first few; ranks that wait themselves come last.
std::string describe_missing(std::vector<int> missing, const RankReports& before, const RankReports& now,
                             const StateOf& state_of);
// Members that have made the call in which `rank` waits, and since then are stopped, held by a debugger, or silent.
std::vector<int> frozen_members(const RankWait& wait, int rank, const RankReports& before, const RankReports& now,
                                const StateOf& state_of);
// "rank 3 (node2, process 1234), which is in it too: it is stopped, ..." for each, the first few.
std::string describe_frozen(const std::vector<int>& frozen, const RankReports& now, const StateOf& state_of);
// "rank 0 waits in WHAT for rank 1; rank 1 waits in ...", the first few.
std::string describe_deadlock(const std::vector<int>& ranks, const RankReports& reports);

// "75 s", "5 min"
std::string age_text(std::chrono::milliseconds age);

}  // namespace dslaunch::comm
