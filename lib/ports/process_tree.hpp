// Whether the process that started another one is still there. The kernel gives an orphan a new parent (init, or a
// subreaper) and keeps no word of it, so this follows from what a parent cannot have done. Pure.
#pragma once
#include <optional>

#include "ports/process_info.hpp"

namespace dslaunch::ports {

enum class Parenthood {
  kStarted,   // its parent started it, or nothing speaks against that
  kOrphaned,  // the process that started it is gone; its parent now only adopted it
  kUnclear,   // its parent is a container's pid 1, which could have started it, or lies outside of this container
};

// A process and what stands around it.
struct Lineage {
  ProcessInfo child;
  std::optional<ProcessInfo> parent;  // what stands under child.parent; empty: nobody there
  // Ended, whether reaped or not. A leader outside of this container, or the child itself, is not gone.
  bool group_leader_gone = false, session_leader_gone = false;
};

Parenthood process_tree(const Lineage& lineage);

// What makes the child a rank of a launcher; kNone: it is not known to be one. A start script that is a container's
// pid 1 gives --local_rank by hand, so under a shell as pid 1 that argument alone does not count.
LauncherSign rank_sign(const Lineage& lineage);

}  // namespace dslaunch::ports
