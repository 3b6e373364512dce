// The life of a job as a table: what state follows from which event, and what is to be done then. Pure.
#pragma once

namespace dslaunch::launch {

enum class JobState {
  kStarting,  // agents are started, the job is described to them
  kRunning,
  kSettling,  // a rank ended because of something else: what that was shows within moments
  kStopping,  // all ranks were told to stop
  kKilling,   // all ranks are being killed
  kDone,
};

enum class JobEvent {
  kAgentsReady,
  kAgentFailed,  // an agent cannot carry out its part
  kAgentLost,    // an agent's channel ended before it was done
  kRankFailed,
  kRankLostPeer,  // a rank ended only because another one did, or by a SIGTERM that may be the whole job's
  kSettled,       // nobody else failed in the meantime
  kInterrupt,     // Ctrl-C
  kEndNow,        // Ctrl-\, 'dslaunch stop --now': whatever the state, no grace
  kTerminate,     // SIGTERM, SIGHUP: the scheduler wants us to stop
  kTimeLimit,
  kOverdue,  // the agents have not finished in the time they had
  kAllDone,  // every agent has finished
};

enum class JobAction {
  kNone,
  kStartRanks,
  kAwaitRootCause,
  kStop,     // SIGTERM, and SIGKILL after the grace
  kKill,     // SIGKILL now
  kAbandon,  // end the agents themselves and sweep up after them
};

struct JobStep {
  JobState to;
  JobAction action;
};

// An event that the table does not list for a state changes nothing.
JobStep next_step(JobState state, JobEvent event);

const char* name_of(JobState state);

}  // namespace dslaunch::launch
