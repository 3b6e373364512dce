// Where the ranks' output goes: each rank's log file gets its bytes as they come, the terminal gets lines with
// "host:rank| " in front (a world of one: the bytes alone). One thread.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/launch_plan.hpp"
#include "launch/line_splitter.hpp"
#include "launch/message.hpp"
#include "launch/tail.hpp"
#include "launch/terminal.hpp"

namespace dslaunch::launch {

struct OutputOptions {
  bool out_to_err = false;  // standard output belongs to one document of ours (--json)
  bool hide_out = false;    // --quiet: the ranks' standard output goes to their logs only
};

class JobOutput {
 public:
  JobOutput(const LaunchPlan& plan, OutputOptions options);

  // Makes RUN_DIR/logs and the files in it, when the plan has a run folder. Throws UserError(73).
  void open_logs();
  void take(const RankOutput& output);
  // The rank has ended: a line without its end is shown.
  void finish(int rank);
  // A line of our own, on standard error.
  void say(std::string_view text);
  // Lines that have their prefix already.
  void tell(std::string_view lines) { err_.write(lines); }
  // A document of ours, on standard output.
  void print(std::string_view text) { out_.write(text); }

  std::string last_words(int rank) const { return ranks_[rank].tail.lines(); }
  // What our readers have not taken yet. With no room left the agents, and then the ranks, have to wait.
  size_t num_pending() const { return out_.num_pending() + err_.num_pending(); }
  bool has_room() const { return num_pending() < kMostPendingBytes; }
  void drop_pending();
  Terminal& out() { return out_; }
  Terminal& err() { return err_; }

 private:
  static constexpr size_t kMostPendingBytes = 8U << 20;

  struct RankStreams {
    std::string host;
    LineSplitter out, err;
    Tail tail;
    UniqueFd log;
  };
  void write_log(RankStreams& rank, std::string_view bytes);

  std::string run_dir_;
  bool append_logs_;
  OutputOptions options_;
  std::deque<RankStreams> ranks_;  // by rank
  Terminal out_{1}, err_{2};
  bool log_trouble_told_ = false;
};

}  // namespace dslaunch::launch
