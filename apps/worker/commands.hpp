// The commands of dsworker, one source file each. Each returns the exit code and throws errors. A command's operands
// and options are in its spec, from which the help is generated.
#pragma once
#include <string>
#include <vector>

#include "command_options.hpp"

namespace dslaunch::worker {

// One rank of a job.
const CommandSpec& train_spec();
int train_command(const std::vector<std::string>& arguments);
// Continues a text with a byte-level model.
const CommandSpec& infer_spec();
int infer_command(const std::vector<std::string>& arguments);
// Whole weights from a sharded checkpoint.
const CommandSpec& consolidate_spec();
int consolidate_command(const std::vector<std::string>& arguments);
// Converts a DeepSpeed checkpoint to ours.
const CommandSpec& import_spec();
int import_command(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
