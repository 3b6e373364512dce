// Going on from a checkpoint, all ranks together. The nodes tell what they see; rank 0 plans which checkpoint is taken
// (resume_plan.hpp); all ranks read what they need of it (restore_source.hpp), and hashes are checked on the way; then
// they agree that it was sound (restore_agreement.hpp). When it was not, everything is read again from the next older
// one (`auto`) or the job ends (a path that the user named): what is loaded is always one checkpoint as a whole. One
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
  std::string dir;   // the run's folder of checkpoints
  std::string from;  // "auto", a checkpoint, or a folder of checkpoints
  Placement placement;
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);  // for the slowest rank's reading: time_for_checkpoint()
  // Of a restart. "auto" takes what this job wrote and nothing else, and where nothing of that is usable there is none;
  // a folder of checkpoints is taken without those, as it was when the job began. Empty: whoever wrote them.
  std::string job;
  comm::Watchdog* watchdog = nullptr;  // tells of ranks for which the others wait
};

struct Restored {
  std::string path;
  CheckpointMetadata metadata;
};

// Collective. `attempt` reads everything it needs from its source and may run collectives; it can be called several
// times, each time for a checkpoint as a whole, and may throw what is wrong on all ranks alike (another model).
// Nothing: `auto`, and there is no checkpoint (of the job: none that is usable). Throws UserError: 66 when the named
// one is not there, 65 when none is usable.
std::optional<Restored> restore_checkpoint(const RestoreOptions& options, rendezvous::Store& store,
                                           comm::Communicator& world,
                                           const std::function<void(RestoreSource&)>& attempt);

}  // namespace dslaunch::runtime
