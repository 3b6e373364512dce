// Which files of a DeepSpeed checkpoint folder hold what: names only, nothing is opened. Any thread.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::runtime::deepspeed {

struct CheckpointFiles {
  std::string folder;  // DIR/TAG
  std::string tag;
  std::vector<std::string> model_states;  // paths; one, or one a rank (stage 3)
  std::vector<std::string> optim_states;  // paths by rank; empty without ZeRO
  bool model_states_by_rank = false;      // stage 3
};

// `dir`: what save_checkpoint() was given, or a tag's folder in it. `tag`: "" takes what `latest` names. Throws
// UserError: 66 when there is no such folder or no checkpoint in it, 65 when files of some ranks are missing or when it
// is of a kind that is not read (pipeline, tensor parallel, experts, universal), with the file that says so.
CheckpointFiles find_files(const std::string& dir, const std::string& tag);

// Would an import into this folder change a checkpoint of DeepSpeed: is it what save_checkpoint() was given, or a
// tag's?
bool holds_checkpoint(const std::string& dir);

}  // namespace dslaunch::runtime::deepspeed
