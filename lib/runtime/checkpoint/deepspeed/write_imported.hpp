// Writes an imported state as one of our checkpoints, with as many shards as DeepSpeed had ranks.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::runtime::deepspeed {

struct ImportedState;

// Writes DIR/step_N in a temporary directory, renames it and points DIR/latest at it. `skeleton`: TorchScript with
// emptied weights, "" for none. Returns the checkpoint's directory. Throws SystemError 73 and 74; then nothing is left
// behind.
std::string write_imported(const ImportedState& state, const std::string& dir, const std::string& skeleton);

// The files that write_imported() leaves when the process ends midway; a directory comes after its contents.
std::vector<std::string> unfinished_files(const ImportedState& state, const std::string& dir);

}  // namespace dslaunch::runtime::deepspeed
