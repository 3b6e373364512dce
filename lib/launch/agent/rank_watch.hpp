// Which ranks of this node are busy, idle or stopped; the launcher reports it when ranks may wait for each other
// (supervisor/stall_watch.hpp). A rank includes all of its processes, since data loaders and programs behind a shell
// count. A look reads one small /proc file for a rank that computes, and one per process of the machine while some rank
// does not. One thread.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "launch/agent/idle_window.hpp"
#include "launch/channel/message.hpp"
#include "ports/process_trees.hpp"

namespace dslaunch::launch {

class RankWatch {
 public:
  using Time = IdleWindow::Time;

  void add(int rank, pid_t pid, Time now);
  // The rank has ended.
  void remove(int rank);
  void on_output(int rank, Time now);
  // The agent does not read the ranks' output: they may be blocked on it.
  void on_unread(Time now);

  Deadline next_check() const;
  // Ranks whose state has changed since the previous look.
  std::vector<RankActivity> check(Time now);

 private:
  struct Watched {
    pid_t pid;
    IdleWindow window;
    uint64_t own_ticks = 0;                // at the previous look, of the process that was started
    bool has_printed = false;              // since the previous look
    std::map<pid_t, uint64_t> tree_ticks;  // at the previous look, of all its processes; empty: not read then
    RankActivity last_reported;
  };
  using Trees = std::map<pid_t, std::vector<ports::TreeProcess>>;

  static bool computes_itself(Watched& rank, Time now);
  static RankActivity classify(Watched& rank, const std::vector<ports::TreeProcess>& tree, Time now);

  std::map<int, Watched> ranks_;
  std::optional<Time> last_check_;
};

}  // namespace dslaunch::launch
