// `dslaunch import`: a checkpoint of DeepSpeed becomes one of ours, with the names of a model where one is given.
// One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct ImportRequest {
  std::string source;  // what save_checkpoint() was given, or a tag's folder in it
  std::string out;     // the folder of checkpoints
  std::string tag;     // "" takes the latest
  std::string model;   // TorchScript; "" for none
  bool check_sums = true;
  bool overwrite = false;  // a checkpoint of the same step in `out`
  // Called before anything is written, with all that is to go when the import is ended in the middle.
  std::function<void(std::vector<std::string> unfinished)> before_writing;
};

struct ImportReport {
  std::string source, tag, version;  // what was read: folder, tag, version of DeepSpeed
  int stage = 0, world_size = 1;
  int64_t step = 0, skipped_steps = 0;
  int64_t num_trained = 0, num_frozen = 0, num_buffers = 0, num_elements = 0;  // elements: of all of them
  std::vector<std::string> optimizer_states;                                   // empty: weights only
  bool has_loss_scale = false;
  double loss_scale = 0;
  std::vector<std::string> notes;
  std::string checkpoint;  // the folder that was written
};

// Throws UserError 64, 65, 66, 73; SystemError 73, 74.
ImportReport import_checkpoint(const ImportRequest& request);

}  // namespace dslaunch::runtime
