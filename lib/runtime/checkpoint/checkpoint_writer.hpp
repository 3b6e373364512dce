// Saves a checkpoint on all ranks, in the background. Rank 0 creates DIR/step_N.tmp, every rank writes its shard there,
// and when all ranks have reported to rank 0 (through the store) that their shards are on the device, rank 0 adds the
// manifest, renames the directory, points `latest` at it (and `best`, if it is among the best) and prunes. Where nodes
// have their own directories, the leader of each does the same in its directory, in step with rank 0: no leader renames
// before all have sealed theirs, and none prunes before all have renamed. A failure on any rank fails the save on all
// of them with that rank's code, removes the directory and leaves earlier checkpoints untouched.
// docs/checkpoint_format.md.
// One instance per rank, used by one thread; all ranks call save() for the same steps.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/checkpoint/storage_topology.hpp"

namespace dslaunch::comm {
class Watchdog;
}
namespace dslaunch::rendezvous {
class Store;
}

namespace dslaunch::runtime {

struct CheckpointWriterOptions {
  std::string dir;  // the directory of checkpoints
  int rank = 0;
  int world_size = 1;
  int64_t keep_last = 2;  // older ones, unless `best` names them, are removed after a success; 0 keeps all
  bool async = true;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // for the whole save: time_for_checkpoint()
  CheckpointStorageTopology share = {};                          // the leader of this rank's directory
  std::string host = {};                                         // in the manifest if there are several directories
  std::chrono::milliseconds final_timeout = std::chrono::minutes(30);  // for other ranks, in the destructor
  comm::Watchdog* watchdog = nullptr;  // reports and limits waits of training for other ranks' parts; may be null
  std::chrono::milliseconds warn_after = std::chrono::seconds(30);  // then a warning reports its activity
};

struct FullWeights {
  std::optional<at::ScalarType> float_dtype;  // of floating-point parameters and buffers; empty: the model's own
};

// One rank's part of a save. Its values must not change until the save is done.
struct CheckpointPart {
  std::vector<StatePiece> pieces;
  std::string rng_state;        // bytes, given back to the same rank at the same world size
  CheckpointMetadata metadata;  // that of the leaders is written; for other ranks only the step counts
  std::string skeleton;         // leaders: TorchScript file with emptied weights, copied; "" for none
  std::string best = {};        // leaders: the new content of `best`; "" leaves it as it is
  // Called in the background before anything is written: waits until the pieces are on the host.
  std::function<void()> wait_for_copies = {};
  // Rank 0, with a single directory: the whole weights are written beside the shards, floating-point ones in this
  // dtype.
  std::optional<FullWeights> full_weights = {};
};

// The current activity of a save in the background: set by its thread, read by the thread that waits for it.
class SaveProgress {
 public:
  // Text that continues "training blocked by the checkpoint of step 20:"; empty: another rank reports it.
  void set(std::string text, bool waits_for_ranks = false) {
    std::lock_guard lock(mutex_);
    text_ = std::move(text);
    waits_for_ranks_ = waits_for_ranks;
  }
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }
  bool waits_for_ranks() const {
    std::lock_guard lock(mutex_);
    return waits_for_ranks_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  bool waits_for_ranks_ = false;
};

class CheckpointWriter {
 public:
  // `store` must outlive the writer.
  CheckpointWriter(CheckpointWriterOptions options, rendezvous::Store& store);
  // Waits for the save in progress; an error that no caller has fetched is lost. The run is failing then, possibly
  // because of the very rank that the save waits for, so the wait is limited to final_timeout.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the previous save and throws its error, then starts this one; returns when it is done if not async.
  void save(CheckpointPart part);
  // Waits for the save in progress, if any, and throws its error: SystemError or Error with code 73 or 74 (this rank's
  // or another's), TimeoutError when a rank did not respond. Storage that stalls on this rank blocks it for as long as
  // the stall lasts: a warning names what it waits for, at doubling intervals. Other ranks are waited for as in a
  // collective: the watchdog names them, and its verdict ends the wait.
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
