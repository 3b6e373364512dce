// Saving a checkpoint on all ranks, in the background. Rank 0 makes DIR/step_N.tmp, every rank writes its shard there,
// and when all have told rank 0 (through the store) that theirs is on the device, rank 0 adds the manifest, renames the
// folder, points `latest` at it and prunes. Where nodes have folders of their own, the leader of each does so in its
// folder, in step with rank 0: nobody renames before all have sealed theirs, nobody prunes before all have renamed.
// Whatever fails on any rank fails the save on all of them with that rank's code, removes the folder and leaves the
// checkpoints before untouched. docs/checkpoint_format.md.
// One instance a rank, used by one thread; all ranks call save() for the same steps.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/checkpoint/save_progress.hpp"
#include "runtime/checkpoint/storage_topology.hpp"
#include "runtime/checkpoint/whole_weights.hpp"

namespace dslaunch::rendezvous {
class Store;
}

namespace dslaunch::runtime {

struct CheckpointWriterOptions {
  std::string dir;  // the folder of checkpoints
  int rank = 0;
  int world_size = 1;
  int64_t keep_last = 2;  // older ones are removed after a success; 0 keeps all
  bool async = true;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // for the whole save: time_for_checkpoint()
  CheckpointStorageTopology share = {};                          // whose folder this rank writes into
  std::string host = {};                                         // named in the manifest when there are several folders
  std::chrono::milliseconds last_patience = std::chrono::minutes(30);  // with other ranks, in the destructor
  std::chrono::milliseconds quiet_wait = std::chrono::seconds(30);     // then what a save is at is told
};

// One rank's part of a save. The tensors are host copies that nobody changes until the save is done.
struct CheckpointPart {
  std::vector<StatePiece> pieces;
  std::string rng_state;        // bytes, given back to the same rank at the same world size
  CheckpointMetadata metadata;  // the leaders' is written; of the others only the step counts
  std::string skeleton;         // leaders: TorchScript file with emptied weights, copied; "" for none
  // Called in the background before anything is written: waits until the pieces are on the host.
  std::function<void()> wait_for_copies = {};
  // Rank 0, one folder: the whole weights are written beside the shards, floating ones in this dtype.
  std::optional<WholeWeights> whole_weights = {};
};

class CheckpointWriter {
 public:
  // `store` outlives the writer.
  CheckpointWriter(CheckpointWriterOptions options, rendezvous::Store& store);
  // Waits for the save in the making; an error that nobody asked for is lost. The run fails then, perhaps by the very
  // rank that the save is waiting for: so it has no more than the last patience.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the save before and throws its error, then starts this one; returns when it is done if not async.
  void save(CheckpointPart part);
  // Waits for the save in the making, if any, and throws its error: SystemError or Error with code 73 or 74 (this
  // rank's or another's), TimeoutError when a rank did not come. Storage that stands still holds it up as long as that
  // lasts: a warning tells what is waited for, at times that double.
  void finish();
  // Step of the last save that was completed on all ranks, as far as finish() or save() has seen; -1: none.
  int64_t last_saved_step() const { return last_saved_step_; }

 private:
  void wait_for_thread();

  const CheckpointWriterOptions options_;
  rendezvous::Store& store_;

  // Owned by the calling thread.
  int64_t num_saves_ = 0;
  int64_t last_saved_step_ = -1;
  int64_t saving_step_ = -1;
  // Read by the background thread.
  std::atomic<Deadline> last_deadline_{Deadline::never()};
  // Set by the background thread.
  SaveProgress progress_;
  std::future<void> ended_;  // with its error
  std::thread thread_;
};

}  // namespace dslaunch::runtime
