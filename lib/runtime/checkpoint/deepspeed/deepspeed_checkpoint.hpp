// A DeepSpeed checkpoint (ZeRO stages 0 to 3, or a pipeline with stage 0 or 1) converted to our terms: parameters,
// pieces of their states, counters. Values are views into the mapped files, so only data that must be cast or gathered
// takes memory. One thread.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/checkpoint/deepspeed/checkpoint_files.hpp"

namespace dslaunch::runtime::deepspeed {

struct ImportedState {
  CheckpointFiles files;
  int stage = 0;
  int num_stages = 1;                           // of a pipeline
  std::string version;                          // of the DeepSpeed that wrote it
  CheckpointMetadata metadata;                  // names as in DeepSpeed
  std::vector<std::vector<StatePiece>> shards;  // by pipeline stage, then data rank; at least one
  std::set<std::string> optimizer_states;  // by our names: "exp_avg", "exp_avg_sq", "momentum", …; empty: weights only
  int64_t skipped_steps = 0;
  // Names in the state dict that share another's tensor; the file does not say whose (stage 3).
  std::vector<std::string> unplaced;
  std::vector<std::string> notes;  // for the user: missing data, assumptions
};

struct ReadOptions {
  std::string tag;  // "" uses the latest
  bool check_sums = true;
  // The model for which the checkpoint is imported, if known: stage 0 does not store which parameters are trained.
  const std::vector<SavedTensor>* model = nullptr;
};

// Throws UserError 65 and 66 naming file, parameter and mismatch.
ImportedState read_checkpoint(const std::string& dir, const ReadOptions& options);

}  // namespace dslaunch::runtime::deepspeed
