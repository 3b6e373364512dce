// The lifecycle of a job as a table: which state follows from an event, and which action to take then. Pure.
#pragma once

namespace dslaunch::launch {

enum class JobState {
  kStarting,  // agents are being started and get the job's description
  kRunning,
  kAwaitingRootCause,  // a rank ended because of something else: wait a moment for the root cause
  kStopping,           // all ranks were told to stop
  kKilling,            // all ranks are being killed
  kDone,
};

enum class JobEvent {
  kAgentsReady,
  kAgentFailed,  // an agent cannot carry out its part
  kAgentLost,    // an agent's channel ended before it was done
  kRankFailed,
  kRankLostPeer,  // a rank ended only because another rank did, or by a SIGTERM that may be meant for the whole job
  kNoRootCause,   // no other rank failed in the meantime
  kInterrupt,     // Ctrl-C
  kEndNow,        // Ctrl-\, 'dslaunch stop --now': in any state, without a grace period
  kTerminate,     // SIGTERM, SIGHUP: the scheduler wants the job to stop
  kTimeLimit,
  kOverdue,  // the agents have not finished in the time they had
  kAllDone,  // every agent has finished
};

enum class JobAction {
  kNone,
  kStartRanks,
  kAwaitRootCause,
  kStop,     // SIGTERM, then SIGKILL after the grace period
  kKill,     // SIGKILL now
  kAbandon,  // end the agents themselves and clean up after them
};

struct JobStep {
  JobState to;
  JobAction action;
};

// An event that the table does not list for a state changes nothing.
JobStep next_step(JobState state, JobEvent event);

const char* name_of(JobState state);

}  // namespace dslaunch::launch
