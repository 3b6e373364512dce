// Decides whether the process that started another one still exists. The kernel gives an orphan a new parent (init, or
// a subreaper) and keeps no record of it, so the decision rests on what a real parent could not have done. Pure.
#pragma once
#include <optional>

#include "ports/process_info.hpp"

namespace dslaunch::ports {

enum class ParentStatus {
  kStarted,   // its parent started it, or nothing contradicts that
  kOrphaned,  // the process that started it is gone; its present parent only adopted it
  kUnclear,   // its parent is a container's pid 1, which could have started it, or is outside this container
};

// A process with its parent and the state of its group and session leaders.
struct Lineage {
  ProcessInfo child;
  std::optional<ProcessInfo> parent;  // the process with the pid child.parent; empty: no such process
  // Ended, whether reaped or not. A leader that is outside this container, or that is the child itself, is not gone.
  bool group_leader_gone = false, session_leader_gone = false;
};

ParentStatus parent_status(const Lineage& lineage);

// The evidence that the child is a rank of a launcher; kNone: it is not known to be one. A start script that is a
// container's pid 1 passes --local_rank by hand, so under a shell as pid 1 that argument alone does not count.
LauncherSign rank_sign(const Lineage& lineage);

}  // namespace dslaunch::ports
