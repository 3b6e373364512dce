// Reports which ranks are waited for when ranks wait long, and ends waits that can never end. A thread checks the
// pending calls of this rank's groups and publishes them in the store each time; one of the ranks that wait long reads
// the reports of all ranks. The message names the call, the missing rank, and what that rank is doing.
//
// A wait is reported after a while (hang_times.hpp), again as it grows, and a last time when it is over. The watchdog
// ends the job when the wait reaches the limit, or as soon as a deadlock is certain: then the groups are aborted, and
// the verdict is the reason.
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
    std::string place = {};  // of this rank in the mesh, for messages about it
    HangTimes times{std::chrono::minutes(30)};
    std::function<void(const std::string& warning)> warn = nullptr;  // called on the watchdog's thread; null: the log
    // Likewise: gets each report (comm/hang_report.hpp), encoded, for those on this host who look at the rank.
    std::function<void(const std::string& report)> show = nullptr;
  };

  // The store must outlive the watchdog.
  Watchdog(Options options, rendezvous::Store& store);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Watches the group's calls from now on; its communicator must outlive the watchdog. Any thread.
  void add(Group group);

  // Sets what this rank is doing from now on ("step 12"), for the reports of ranks that wait for it. Any thread.
  void set_activity(std::string activity);
  // Records a step's duration: waits of a few steps are not worth a report. Any thread.
  void add_step(std::chrono::milliseconds time);
  // Shorter waits are not reported. Any thread.
  std::chrono::milliseconds report_threshold() const;

  // A barrier of all ranks of the world outside the collectives. This rank waits for the others while the object lives.
  // One at a time.
  class BarrierWait {
   public:
    // `name` must be the same on all ranks, and may be used again; `what` and `advice` are for messages, `advice` for
    // when the missing ranks never arrive. With a limit of its own (not 0) the wait times out by itself: the watchdog
    // reports it, but does not end the job for it.
    BarrierWait(Watchdog& watch, const std::string& name, std::string what, std::string advice,
                std::chrono::milliseconds own_timeout = {});
    ~BarrierWait();
    BarrierWait(const BarrierWait&) = delete;
    BarrierWait& operator=(const BarrierWait&) = delete;

   private:
    Watchdog& watch_;
  };

  // Work that a thread in the background of every rank does once for each `number` (1, 2, ...) of a sequence: this
  // rank's part is done. Any thread.
  void mark_done(const std::string& sequence, uint64_t number);
  // This rank waits, while the object lives, for the ranks that have not done their part; or, when all have, for one
  // that has frozen since. As a wait in a collective it is reported, and ends the job at the limit. One at a time.
  class PartWait {
   public:
    PartWait(Watchdog& watch, const std::string& sequence, uint64_t number, std::string what);
    ~PartWait();
    PartWait(const PartWait&) = delete;
    PartWait& operator=(const PartWait&) = delete;

   private:
    Watchdog& watch_;
  };

  // Stops all reports and verdicts. Does not block, whereas the destructor may if the store does not answer. Any
  // thread.
  void end();
  // Why the job ends, if a watchdog has ended it: the one of this rank, or of another, from which this rank's takes it
  // over.
  std::optional<Error> verdict() const;

 private:
  struct LongWait;  // a long wait that this rank reports

  void run();
  void check();
  RankReport report() const;
  void publish(const RankReport& own);
  RankReports read_all(const RankReport& own);
  void track_longest_wait(const RankReport& own);
  bool claim_report(const RankWait& wait, size_t report_number);
  void check_long_wait(const RankReport& own);
  std::string describe_missing_ranks(const RankWait& wait, const RankReports& before, const RankReports& now) const;
  std::chrono::milliseconds median_step() const;
  void warn(const std::string& text) const;
  void end_job(ExitCode code, const std::string& message);
  void take_over_verdict();
  void abort_groups(ExitCode code, const std::string& message);
  RankWait wait_of_all(const std::string& sequence, uint64_t number, std::string what) const;

  const Options options_;
  rendezvous::Store& store_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Group> groups_;
  std::string activity_;
  std::chrono::steady_clock::time_point activity_since_;
  MedianTime steps_;
  struct OwnWait {
    RankWait wait;
    std::chrono::steady_clock::time_point since;
  };
  // How often this rank has entered each barrier, and the last part that it has done, like a group's last call.
  std::map<std::string, uint64_t> last_own_;
  std::optional<OwnWait> barrier_, part_;  // those that this rank is in
  std::optional<Error> verdict_;
  bool is_ending_ = false;

  // Owned by the watchdog's thread.
  uint64_t heartbeat_ = 0;
  std::unique_ptr<LongWait> long_wait_;
  std::thread thread_;
};

}  // namespace dslaunch::comm
