// An imported state as one of our checkpoints, with as many shards as DeepSpeed had ranks.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::runtime::deepspeed {

struct ImportedState;

// Writes DIR/step_N aside, renames it and points DIR/latest at it. `skeleton`: TorchScript with emptied weights, "" for
// none. Returns the checkpoint's folder. Throws SystemError 73 and 74; nothing is left behind then.
std::string write_imported(const ImportedState& state, const std::string& dir, const std::string& skeleton);

// What write_imported() leaves when the process ends in the middle of it, a folder behind what is in it.
std::vector<std::string> unfinished_files(const ImportedState& state, const std::string& dir);

}  // namespace dslaunch::runtime::deepspeed
