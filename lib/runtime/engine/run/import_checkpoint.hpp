// `dslaunch import`: converts a DeepSpeed checkpoint to ours, with the names of a model if one is given. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dslaunch::runtime::engine::run {

struct ImportRequest {
  std::string source;  // the directory passed to save_checkpoint(), or a tag's directory in it
  std::string out;     // the directory of checkpoints
  std::string tag;     // "": the latest
  std::string model;   // TorchScript; "": none
  bool check_sums = true;
  bool overwrite = false;  // replaces a checkpoint of the same step in `out`
  // Called before anything is written, with all files to delete if the import is interrupted.
  std::function<void(std::vector<std::string> unfinished)> before_writing;
};

struct ImportReport {
  std::string source, tag, version;  // what was read: directory, tag, DeepSpeed version
  int stage = 0, num_pipeline_stages = 1, world_size = 1;
  int64_t step = 0, skipped_steps = 0;
  int64_t num_trained = 0, num_frozen = 0, num_buffers = 0, num_elements = 0;  // elements: of all of these
  std::vector<std::string> optimizer_states;                                   // empty: weights only
  bool has_loss_scale = false;
  double loss_scale = 0;
  std::vector<std::string> notes;
  std::string checkpoint;  // the directory that was written
};

// Throws UserError 64, 65, 66, 73; SystemError 73, 74.
ImportReport import_checkpoint(const ImportRequest& request);

}  // namespace dslaunch::runtime::engine::run
