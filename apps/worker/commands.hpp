// The commands of dsworker, one source file each. Each returns the exit code; errors are thrown.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::worker {

// dsworker train MODEL.pt [--config F] ...: one rank of a job.
int train_command(const std::vector<std::string>& arguments);
// dsworker infer --checkpoint C --prompt TEXT: continues a text with a byte-level model.
int infer_command(const std::vector<std::string>& arguments);
// dsworker consolidate CKPT OUT: whole weights from a sharded checkpoint.
int consolidate_command(const std::vector<std::string>& arguments);
// dsworker import DS_CHECKPOINT_DIR OUT: a checkpoint of DeepSpeed as one of ours.
int import_command(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
