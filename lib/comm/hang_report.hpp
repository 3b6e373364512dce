// What ranks tell of themselves, and what follows from it: who is waited for, what that rank is at, and whether ranks
// wait for each other. Pure.
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

// A call that has not ended on a rank, or another meeting of ranks.
struct RankWait {
  std::string group;  // whose sequence `number` counts
  uint64_t number = 0;
  std::string what;
  std::string advice;        // what to do when nobody will come; may be empty
  std::vector<int> members;  // the world's ranks that take part
  std::chrono::milliseconds age{};
  bool holds_host = true;     // false: the rank itself may have gone on
  bool is_on_device = false;  // it may be waiting for what was computed before it
  // Not 0: the wait gives up by itself then, and no watch ends it for lasting long.
  std::chrono::milliseconds own_limit{};
};

struct RankReport {
  std::string host;
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // of the process, since boot: no later one of that number has the same
  uint64_t beat = 0;         // counts the reports: who keeps still does not count on
  std::string activity;      // "step 12"; may be empty
  std::chrono::milliseconds activity_age{};
  std::map<std::string, uint64_t> last_calls;  // by group
  std::vector<RankWait> waits;
};

std::string encode(const RankReport& report);
RankReport decode(std::string_view bytes);  // throws WireError

// By rank of the world; nothing from a rank that has not said anything yet.
using RankReports = std::vector<std::optional<RankReport>>;

// Those that have not made the call in which `rank` waits.
std::vector<int> absent_from(const RankWait& wait, int rank, const RankReports& reports);

// Ranks whose waits can never end, since each waits for others of them: they were there at the look before already, and
// have been waiting for `at_least`. Empty: somebody may still go on.
std::vector<int> waiting_for_each_other(const RankReports& before, const RankReports& now,
                                        std::chrono::milliseconds at_least);

// A state letter of /proc for a process of this host; nothing when it is not of this host, or gone.
using StateOf = std::function<std::optional<char>(const RankReport&)>;

// "rank 3 (node2, process 1234): it is stopped, ..." for each, the first few; those that wait themselves come last.
std::string describe_absent(std::vector<int> absent, const RankReports& before, const RankReports& now,
                            const StateOf& state_of);
// Members that have made the call in which `rank` waits, and are stopped since, held by a debugger, or silent.
std::vector<int> frozen_in(const RankWait& wait, int rank, const RankReports& before, const RankReports& now,
                           const StateOf& state_of);
// "rank 3 (node2, process 1234), which is in it too: it is stopped, ..." for each, the first few.
std::string describe_frozen(const std::vector<int>& frozen, const RankReports& now, const StateOf& state_of);
// "rank 0 waits in WHAT for rank 1; rank 1 waits in ...", the first few.
std::string describe_circle(const std::vector<int>& ranks, const RankReports& reports);

// "75 s", "5 min"
std::string age_text(std::chrono::milliseconds age);

}  // namespace dslaunch::comm
