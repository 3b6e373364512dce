// Resuming from a checkpoint, all ranks together. The nodes report the checkpoints they see; rank 0 plans which one to
// use (resume_plan.hpp); all ranks read what they need from it (restore_source.hpp) while checking hashes; then they
// agree that it was valid (restore_agreement.hpp). If it was not, everything is read again from the next older one
// (`auto`), or the job ends (a path that the user named): the loaded state always comes from one whole checkpoint. One
// thread.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/placement.hpp"
#include "runtime/checkpoint/restore_source.hpp"

namespace dslaunch::runtime {

struct RestoreOptions {
  std::string dir;   // the run's directory of checkpoints
  std::string from;  // "auto", a checkpoint, or a directory of checkpoints
  Placement placement;
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);  // for the slowest rank's reading: time_for_checkpoint()
  // Id of the job, for a restart. "auto" then uses only checkpoints that this job wrote, and finds none if none of them
  // is usable; a directory of checkpoints is read without this job's checkpoints, as it was when the job began. Empty:
  // checkpoints of any job.
  std::string job;
  comm::Watchdog* watchdog = nullptr;  // reports ranks that the other ranks wait for
};

struct Restored {
  std::string path;
  CheckpointMetadata metadata;
};

// Collective. `attempt` reads everything it needs from its source and may run collectives. It can be called several
// times, each time for a whole checkpoint, and may throw an error that occurs on all ranks alike (another model).
// Returns nothing for `auto` when there is no checkpoint (of the job: no usable one). Throws UserError: 66 when the
// named one does not exist, 65 when none is usable.
std::optional<Restored> restore_checkpoint(const RestoreOptions& options, rendezvous::Store& store,
                                           comm::Communicator& world,
                                           const std::function<void(RestoreSource&)>& attempt);

}  // namespace dslaunch::runtime
