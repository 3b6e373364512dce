// A run's checkpoints: which state of engine, model and data a checkpoint holds, and how a run resumes from one. The
// format, and the agreement between ranks, belong to lib/runtime/checkpoint.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/directory_lock.hpp"
#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_restore.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "runtime/checkpoint/host_staging_buffers.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {
struct NameMatch;
}

namespace dslaunch::runtime::engine::run {

struct CheckpointingOptions {
  std::string run_dir;
  config::Checkpoint checkpoint;
  std::optional<config::Init> init;
  std::string model_path;
  std::string resolved_config;
  Placement placement;
  bool saves = true;                          // false: no checkpoint is saved, whatever the config says
  bool full_weights = false;                  // each checkpoint also holds the whole weights, in float_dtype
  std::optional<at::ScalarType> float_dtype;  // of whole weights; empty: the model's own dtype
  precision::ModelDtypes dtypes;              // of the model's tensors in this run
  std::string job;                            // the job's id; empty: not known
  comm::Watchdog* watchdog = nullptr;         // may be null
  std::chrono::milliseconds hang_limit = std::chrono::minutes(30);  // of a wait for other ranks
  std::vector<SavedTensor> whole_model = {};                        // of a stage of a pipeline: those of all stages
};

// How long saves blocked training on this rank.
struct SaveStalls {
  int64_t num_saves = 0;
  double waiting_ms = 0;  // for files: of the previous save, the last one at the end, each one without checkpoint.async
  double copying_ms = 0;
};

class Checkpointing : private step::EngineObserver {
 public:
  // Throws UserError(73): on all ranks when the checkpoint directory is not the same directory for all ranks; on the
  // rank that leads the saves when another job saves there.
  Checkpointing(CheckpointingOptions options, model::Model& model, step::Engine& engine, const comm::Groups& groups,
                rendezvous::Store& store, at::Device device);

  // `from`: "" starts from scratch. "auto": the run's newest intact checkpoint, or from scratch if there is none. A
  // path: that checkpoint, or the newest one in that directory, as far as checkpoint.load says. Restores engine, frozen
  // weights, buffers and random state; returns the data position to continue from. `begin_from` ("" or a path): "auto"
  // then takes only checkpoints that this job saved, and starts from `begin_from` if none is intact. Collective.
  DataPosition resume(const std::string& from, const std::optional<std::string>& begin_from = std::nullopt);
  // Saves the state after the last step. All ranks call it at the same step. Returns before the files are written
  // unless `wait`; the next call throws the errors of a background save.
  void save(const DataPosition& position, bool wait);
  void finish();
  // The state after the last step is among the best: saves it as save() does, unless that has been done. `best`: the
  // new content of the file of that name (checkpoint_directory.hpp), the same on all ranks.
  void save_as_best(const DataPosition& position, bool wait, const std::string& best);
  // After a resume: what `best` says of the checkpoints that are there, if it says something else. All ranks.
  void restore_best(const std::string& best);
  // Whether a checkpoint of that step is there, as this host sees it.
  bool has_checkpoint(int64_t step) const;
  // The directory of the last checkpoint that all ranks completed; empty: none.
  std::string last_saved() const;
  // Its step; -1: none. A save in the background counts once a later call has waited for it.
  int64_t last_saved_step() const { return writer_->last_saved_step(); }
  // Where checkpoints are saved; empty: nothing is saved.
  std::string directory() const;
  // Where the checkpoint of that step is.
  std::string path_of(int64_t step) const;

 private:
  void before_update(std::span<const SpanState>, const step::ApplyUpdate&) override;
  bool allows_early_updates() const override { return !reads_offloaded_; }
  void prepare_copies();
  std::vector<StatePiece> pieces();
  void add_frozen(const step::FrozenPart& frozen, std::vector<StatePiece>& out) const;
  CheckpointMetadata metadata(const DataPosition& position) const;
  at::Tensor frozen_part(const step::FrozenPart& part) const;
  std::vector<step::FrozenPart> owned_frozen() const;
  std::string skeleton();
  void wait_for_writer();
  void name_best(const std::string& best) const;
  void start_writing(CheckpointPart part);

  void resize_buffers(RestoreSource& source);
  void load(RestoreSource& source, const config::CheckpointLoad& load_options);
  std::map<std::string, int64_t> find_moment_starts(const CheckpointMetadata& saved,
                                                    const config::CheckpointLoad& load_options) const;
  void restore_engine(RestoreSource& source, const config::CheckpointLoad& load_options, const NameMatch& match);
  const at::Tensor& read_frozen(RestoreSource& source, const step::FrozenPart& part);
  void restore_frozen(RestoreSource& source, const NameMatch& match);
  void restore_buffers(RestoreSource& source, const NameMatch& match);
  void continue_from(const Restored& restored) const;
  void report_loaded(const Restored& restored, const config::CheckpointLoad& load_options) const;

  const CheckpointingOptions options_;
  model::Model& model_;
  step::Engine& engine_;
  const comm::Groups groups_;
  rendezvous::Store& store_;
  const at::Device device_;
  const std::chrono::milliseconds timeout_;  // of a save, and of a resume
  std::string dir_;
  CheckpointStorageTopology share_;
  DirectoryLock lock_;            // on `dir_`, if the config names one
  HostStagingBuffers copies_;     // outlives the writer, which reads them
  bool reads_offloaded_ = false;  // a save may still read state that was not copied
  std::unique_ptr<CheckpointWriter> writer_;
  // Values loaded from a checkpoint of the frozen parameters that this rank saves again: keyed by parameter and first
  // element, 1-D, on the host, in the model's own dtype.
  std::map<std::pair<int, int64_t>, at::Tensor> loaded_frozen_;
  // Of trained parameters whose moments began after others', by name: SavedTensor::moments_since.
  std::map<std::string, int64_t> moment_starts_;
  std::string skeleton_;    // written by this process: the run directory may hold another model's
  int64_t last_step_ = -1;  // the last step passed to the writer
  std::string next_best_;   // what the next save writes as `best`; empty: nothing
  SaveStalls stalls_;
};

}  // namespace dslaunch::runtime::engine::run
