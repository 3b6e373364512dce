// A run's checkpoints: what of engine, model and data goes into one, and how a run goes on from one. The format and the
// agreement of the ranks are the checkpoint room's.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/folder_lock.hpp"
#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_restore.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "runtime/checkpoint/host_staging_buffers.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

struct NameMatch;

struct CheckpointingOptions {
  std::string run_dir;
  config::Checkpoint checkpoint;
  std::optional<config::Init> init;
  std::string model_path;
  std::string resolved_config;
  Placement placement;
  bool saves = true;                          // false: nothing will be saved, whatever the config says
  bool whole_weights = false;                 // each checkpoint holds them too, in float_dtype
  std::optional<at::ScalarType> float_dtype;  // of whole weights; empty: the model's own
  precision::ModelDtypes dtypes;              // of the model's tensors in this run
  std::string job;                            // its id; empty: not known
  comm::Watchdog* watchdog = nullptr;         // may be null
};

// How long the run stood still for its saves, on this rank.
struct SaveStalls {
  int64_t num_saves = 0;
  double waiting_ms = 0;  // for files: the save before, the last one at the end, each one without checkpoint.async
  double copying_ms = 0;
};

class Checkpointing {
 public:
  // Throws UserError(73): on all ranks when the checkpoints' folder is not one for all of them, on the one that leads
  // the saves when another job saves there.
  Checkpointing(CheckpointingOptions options, ModelSource& model, Engine& engine, comm::Communicator& world,
                rendezvous::Store& store, at::Device device);

  // "": starts afresh. "auto": the newest checkpoint of the run that is sound, or afresh where there is none. A path:
  // that checkpoint, or the newest one in that folder, as far as checkpoint.load says. Restores engine, frozen weights,
  // buffers and random state; returns where the data goes on. `begin_from`: "auto" takes what this job saved, and where
  // there is nothing sound begins there, which is "" or a path. Collective.
  DataPosition resume(const std::string& from, const std::optional<std::string>& begin_from = std::nullopt);
  // Saves the state after the last step. All ranks call it at the same step. Returns before the files are written
  // unless `wait`; errors of a save in the background are thrown by the next call.
  void save(const DataPosition& position, bool wait);
  void finish();
  // The folder of the last checkpoint that all ranks completed; empty: none.
  std::string last_saved() const;

 private:
  void prepare_copies();
  std::vector<StatePiece> pieces();
  CheckpointMetadata metadata(const DataPosition& position) const;
  at::Tensor frozen_part(const FrozenPart& part) const;
  std::vector<FrozenPart> owned_frozen() const;
  std::string skeleton();
  void wait_for_writer();
  void start_writing(CheckpointPart part);

  void follow_shapes(RestoreSource& source);
  void load(RestoreSource& source, const config::CheckpointLoad& how);
  void restore_engine(RestoreSource& source, const config::CheckpointLoad& how, const NameMatch& match);
  const at::Tensor& read_frozen(RestoreSource& source, const FrozenPart& part);
  void restore_frozen(RestoreSource& source, const NameMatch& match);
  void restore_buffers(RestoreSource& source, const NameMatch& match);
  void go_on_from(const Restored& restored) const;
  void tell_loaded(const Restored& restored, const config::CheckpointLoad& how) const;

  const CheckpointingOptions options_;
  ModelSource& model_;
  Engine& engine_;
  comm::Communicator& world_;
  rendezvous::Store& store_;
  const at::Device device_;
  const std::chrono::milliseconds timeout_;  // of a save, and of a resume
  std::string dir_;
  CheckpointStorageTopology share_;
  FolderLock lock_;            // of `dir_`, where the config names one
  HostStagingBuffers copies_;  // outlives the writer, which reads them
  std::unique_ptr<CheckpointWriter> writer_;
  // What a checkpoint brought of frozen parameters that this rank saves again: by parameter and first element, 1-D, on
  // the host, in the model's own dtype.
  std::map<std::pair<int, int64_t>, at::Tensor> loaded_frozen_;
  std::string skeleton_;    // written by this process: the run's folder may hold another model's
  int64_t last_step_ = -1;  // that was handed to the writer
  SaveStalls stalls_;
};

}  // namespace dslaunch::runtime
