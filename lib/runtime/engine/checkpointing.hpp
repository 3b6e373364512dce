// A run's checkpoints: what of engine, model and data goes into one, and how a run goes on from one. The format and the
// agreement of the ranks are the checkpoint room's.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

struct CheckpointingOptions {
  std::string run_dir;
  config::Checkpoint checkpoint;
  std::string model_path;
  std::string resolved_config;
  bool several_hosts = false;
};

class Checkpointing {
 public:
  // Throws UserError(73) on all ranks when the checkpoints' folder is not one for all of them.
  Checkpointing(CheckpointingOptions options, ModelSource& model, Engine& engine, comm::Communicator& world,
                rendezvous::Store& store, at::Device device);

  // "": starts afresh. "auto": the newest complete checkpoint of the run, or afresh. A path: that checkpoint, or the
  // newest one in that folder. Restores engine, buffers and random state; returns where the data goes on.
  DataPosition resume(const std::string& from);
  // Saves the state after the last step. All ranks call it at the same step. Returns before the files are written
  // unless `wait`; errors of a save in the background are thrown by the next call.
  void save(const DataPosition& position, bool wait);
  void finish();
  // The folder of the last checkpoint that all ranks completed; empty: none.
  std::string last_saved() const;

 private:
  std::vector<StatePiece> pieces() const;
  CheckpointMetadata metadata(const DataPosition& position) const;
  void restore_buffers(class CheckpointReader& reader);

  const CheckpointingOptions options_;
  ModelSource& model_;
  Engine& engine_;
  comm::Communicator& world_;
  const at::Device device_;
  std::string dir_, skeleton_;
  std::unique_ptr<CheckpointWriter> writer_;
  bool skeleton_written_ = false;  // by this process: the run's folder may hold another model's
  int64_t last_step_ = -1;         // that was handed to the writer
};

}  // namespace dslaunch::runtime
