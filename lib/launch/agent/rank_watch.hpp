// Which ranks of this node are busy, idle or stopped, for the launcher, which says so when ranks may wait for each
// other (supervisor/stall_watch.hpp). A rank is all of its processes, since data loaders and programs behind a shell
// count. A look costs one small file of /proc for a rank that computes, and one of each process of the machine while
// some rank does not. One thread.
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
  // It has ended.
  void remove(int rank);
  void on_output(int rank, Time now);
  // Nobody reads what ranks print: they may wait for us.
  void on_unread(Time now);

  Deadline next_look() const;
  // Ranks whose state has changed since the look before.
  std::vector<RankActivity> look(Time now);

 private:
  struct Watched {
    pid_t pid;
    IdleWindow window;
    uint64_t own_ticks = 0;                // at the look before, of the process that was started
    bool has_printed = false;              // since then
    std::map<pid_t, uint64_t> tree_ticks;  // at the look before, of all its processes; empty: not looked at then
    RankActivity told;
  };
  using Trees = std::map<pid_t, std::vector<ports::TreeProcess>>;

  static bool computes_itself(Watched& rank, Time now);
  static RankActivity judge(Watched& rank, const std::vector<ports::TreeProcess>& tree, Time now);

  std::map<int, Watched> ranks_;
  std::optional<Time> last_look_;
};

}  // namespace dslaunch::launch
