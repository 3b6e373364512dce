#include "launch/jobs/job_states.hpp"

namespace dslaunch::launch {
namespace {

struct Row {
  JobState from;
  JobEvent event;
  JobState to;
  JobAction action;
};

using S = JobState;
using E = JobEvent;
using A = JobAction;

constexpr Row kTable[] = {
    {S::kStarting, E::kAgentsReady, S::kRunning, A::kStartRanks},
    {S::kStarting, E::kAgentFailed, S::kStopping, A::kStop},
    {S::kStarting, E::kAgentLost, S::kKilling, A::kKill},
    {S::kStarting, E::kInterrupt, S::kStopping, A::kStop},
    {S::kStarting, E::kEndNow, S::kKilling, A::kKill},
    {S::kStarting, E::kTerminate, S::kStopping, A::kStop},
    {S::kStarting, E::kTimeLimit, S::kStopping, A::kStop},
    {S::kStarting, E::kAllDone, S::kDone, A::kNone},

    {S::kRunning, E::kRankFailed, S::kStopping, A::kStop},
    {S::kRunning, E::kRankLostPeer, S::kAwaitingRootCause, A::kAwaitRootCause},
    {S::kRunning, E::kAgentFailed, S::kStopping, A::kStop},
    {S::kRunning, E::kAgentLost, S::kKilling, A::kKill},
    {S::kRunning, E::kInterrupt, S::kStopping, A::kStop},
    {S::kRunning, E::kEndNow, S::kKilling, A::kKill},
    {S::kRunning, E::kTerminate, S::kStopping, A::kStop},
    {S::kRunning, E::kTimeLimit, S::kStopping, A::kStop},
    {S::kRunning, E::kAllDone, S::kDone, A::kNone},

    {S::kAwaitingRootCause, E::kRankFailed, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kNoRootCause, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kAgentFailed, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kAgentLost, S::kKilling, A::kKill},
    {S::kAwaitingRootCause, E::kInterrupt, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kEndNow, S::kKilling, A::kKill},
    {S::kAwaitingRootCause, E::kTerminate, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kTimeLimit, S::kStopping, A::kStop},
    {S::kAwaitingRootCause, E::kAllDone, S::kDone, A::kNone},

    {S::kStopping, E::kInterrupt, S::kKilling, A::kKill},
    {S::kStopping, E::kEndNow, S::kKilling, A::kKill},
    {S::kStopping, E::kAgentLost, S::kKilling, A::kKill},
    {S::kStopping, E::kOverdue, S::kKilling, A::kKill},
    {S::kStopping, E::kAllDone, S::kDone, A::kNone},

    {S::kKilling, E::kOverdue, S::kDone, A::kAbandon},
    {S::kKilling, E::kAllDone, S::kDone, A::kNone},
};

}  // namespace

JobStep next_step(JobState state, JobEvent event) {
  for (const Row& row : kTable) {
    if (row.from == state && row.event == event) return {row.to, row.action};
  }
  return {state, JobAction::kNone};
}

const char* name_of(JobState state) {
  switch (state) {
    case JobState::kStarting:
      return "starting";
    case JobState::kRunning:
      return "running";
    case JobState::kAwaitingRootCause:
      return "settling";
    case JobState::kStopping:
      return "stopping";
    case JobState::kKilling:
      return "killing";
    case JobState::kDone:
      return "done";
  }
  return "";
}

}  // namespace dslaunch::launch
