// A checkpoint of DeepSpeed (ZeRO stages 0 to 3, data-parallel) in the terms of ours: parameters, pieces of their
// states, counters. Values are views into the mapped files, so nothing but what must be cast or gathered takes memory.
// One thread.
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
  std::string version;                          // of the DeepSpeed that wrote it
  CheckpointMetadata metadata;                  // names as DeepSpeed has them
  std::vector<std::vector<StatePiece>> shards;  // by data-parallel rank; at least one
  std::set<std::string> optimizer_states;  // of ours: "exp_avg", "exp_avg_sq", "momentum", …; empty: weights only
  int64_t skipped_steps = 0;
  // Names of the state dict that share another's tensor, without a word of whose (stage 3).
  std::vector<std::string> unplaced;
  std::vector<std::string> notes;  // for the user: what is not there, what was assumed
};

struct ReadOptions {
  std::string tag;  // "" takes the latest
  bool check_sums = true;
  // The model that the checkpoint is imported for, if it is known: stage 0 does not store which parameters are trained.
  const std::vector<SavedTensor>* model = nullptr;
};

// Throws UserError 65 and 66 with file, parameter and what does not fit.
ImportedState read_checkpoint(const std::string& dir, const ReadOptions& options);

}  // namespace dslaunch::runtime::deepspeed
