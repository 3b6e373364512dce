// Says who is waited for when ranks wait long, and ends what can never end: a thread looks at the pending calls of this
// rank's groups, tells the store each time what it sees, and one of those that wait long reads what all have told.
// What is said names the call, the rank that has not come, and what that one is at.
//
// A wait is reported after a while (hang_times.hpp), again when it has grown, and once more when it is over. It ends
// the job when it has lasted as long as the limit, or as soon as it is certain that ranks wait for each other: then the
// groups are aborted, and the verdict is the reason.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/hang_report.hpp"
#include "comm/hang_times.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::comm {

class Watchdog {
 public:
  struct Group {
    Communicator* communicator = nullptr;
    std::string name;
    std::vector<int> members;  // ranks of the world, in the group's order
  };
  struct Options {
    int rank = 0, world_size = 1;
    std::string host;
    HangTimes times{std::chrono::minutes(30)};
    std::function<void(const std::string& warning)> tell = nullptr;  // from the thread of the watch; null: the log
  };

  // The store must outlive the watch.
  Watchdog(Options options, rendezvous::Store& store);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Its calls are watched from now on; it must outlive the watch. Any thread.
  void add(Group group);

  // What this rank is at from now on: "step 12". For those that wait for it. Any thread.
  void set_activity(std::string activity);
  // A step has taken so long: waits of a few steps are not worth a report. Any thread.
  void add_step(std::chrono::milliseconds time);
  // Shorter waits are not reported. Any thread.
  std::chrono::milliseconds quiet() const;

  // All ranks of the world meet, otherwise than in a collective. While it lives, this rank waits for them. One at a
  // time.
  class Meeting {
   public:
    // `name` the same on all ranks, and may be used again; `what` and `advice` are for messages, the latter for when
    // nobody will come. With a limit of its own (not 0) the wait gives up by itself: it is told of, and does not end
    // the job here.
    Meeting(Watchdog& watch, const std::string& name, std::string what, std::string advice,
            std::chrono::milliseconds own_limit = {});
    ~Meeting();
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

   private:
    Watchdog& watch_;
  };

  // Nothing is said or ended any more. Does not block, as the destructor may where the store does not answer. Any
  // thread.
  void end();
  // Why the job ends, when this rank's watch has ended it.
  std::optional<Error> verdict() const;

 private:
  struct Case;  // a long wait that this rank tells of

  void run();
  void look();
  RankReport report() const;
  void publish(const RankReport& own);
  RankReports read_all(const RankReport& own);
  void follow(const RankReport& own);
  bool take_over(const RankWait& wait, size_t times_told);
  void judge(const RankReport& own);
  std::string awaited_ranks(const RankWait& wait, const RankReports& before, const RankReports& now) const;
  std::chrono::milliseconds usual_step() const;
  void tell(const std::string& text) const;
  void end_job(ExitCode code, const std::string& message);

  const Options options_;
  rendezvous::Store& store_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Group> groups_;
  std::string activity_;
  std::chrono::steady_clock::time_point activity_since_;
  MedianTime steps_;
  std::map<std::string, uint64_t> meetings_;  // how often this rank has come to each, as the last calls of groups
  std::optional<RankWait> meeting_;           // in which it is
  std::chrono::steady_clock::time_point meeting_since_;
  std::optional<Error> verdict_;
  bool is_ending_ = false;

  // Of the thread.
  uint64_t beat_ = 0;
  std::unique_ptr<Case> case_;
  std::thread thread_;
};

}  // namespace dslaunch::comm
