// Merges a line that several ranks write at about the same time into one for the terminal: "[ranks 0-7] text". A line
// waits briefly for equal lines of other ranks; each rank's lines keep their order. Errors that differ in numbers
// alone, as in the offset that a failing disk refused, are merged, too: one of them is shown, and whose numbers it has.
// So are the errors of ranks that repeat the error of the rank that failed. Pure: time is an argument.
#pragma once
#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// "0-3, 6" of ascending ranks.
std::string rank_ranges(const std::vector<int>& ranks);

class LineDeduplicator {
 public:
  using Time = Deadline::Clock::time_point;
  // How long the first of several equal lines waits for the rest; "error: ..." ends a rank, and others may end of the
  // same cause a little later.
  static constexpr std::chrono::milliseconds kWindow{100}, kErrorWindow{3000};

  struct Shown {
    Stream stream;
    std::string text;
    bool operator==(const Shown&) const = default;
  };

  // `prefixes`: the prefix of each rank's own lines, by rank. `num_ranks`: how many ranks write at all; a line that all
  // of those have written that have not ended does not wait any longer.
  LineDeduplicator(std::vector<std::string> prefixes, int num_ranks)
      : has_ended_(prefixes.size()), prefixes_(std::move(prefixes)), num_writing_(num_ranks) {}

  // A complete line, including its end.
  void add(int rank, Stream stream, std::string_view line, Time now);
  // One rank fewer to wait for; once for each rank that writes.
  void rank_ended(int rank);
  // The lines to show now, in order.
  std::vector<Shown> take(Time now);
  std::vector<Shown> take_all();
  // When to call take() again; never if no line waits.
  Deadline next(Time now) const;

 private:
  struct Group {
    Stream stream;
    std::string line;
    std::vector<int> ranks;
    Time until;                   // the end of its wait
    int first = 0;                // the rank whose line it is
    bool numbers_differ = false;  // of the others
  };
  Group* group_for(int rank, Stream stream, std::string_view line);
  bool is_complete(const Group& group) const;
  Shown show(Group group) const;

  std::vector<bool> has_ended_;  // by rank
  std::vector<std::string> prefixes_;
  int num_writing_;
  std::deque<Group> waiting_;  // in the order in which they are shown
  size_t waiting_bytes_ = 0;
};

}  // namespace dslaunch::launch
