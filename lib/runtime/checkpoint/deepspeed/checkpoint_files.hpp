// Which files of a DeepSpeed checkpoint directory hold what: uses names only, opens no file. Any thread.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace dslaunch::runtime::deepspeed {

// Of one pipeline stage.
struct StageFiles {
  std::string model_states;
  std::vector<std::string> optim_states;  // by data rank; empty without ZeRO
};

struct CheckpointFiles {
  std::string directory;  // DIR/TAG
  std::string tag;
  std::vector<std::string> model_states;  // paths; one, or one per rank (stage 3)
  std::vector<std::string> optim_states;  // paths by rank; empty without ZeRO
  bool model_states_by_rank = false;      // stage 3
  // Of a pipeline, which has nothing of the above:
  std::vector<StageFiles> stages;
  std::map<int, std::string> layers;  // the weights, by the layer's number in DeepSpeed's PipelineModule

  bool is_pipeline() const { return !stages.empty(); }
};

// `dir`: the argument of save_checkpoint(), or a tag's directory in it. `tag`: "" uses the tag that `latest` names.
// Throws UserError: 66 when there is no such directory or no checkpoint in it, 65 when files of some ranks are missing
// or when the checkpoint is of an unsupported kind (tensor parallel, experts, universal), naming the file that shows
// it.
CheckpointFiles find_files(const std::string& dir, const std::string& tag);

// Whether an import into this directory would change a DeepSpeed checkpoint: the directory is the argument of
// save_checkpoint(), or that of a tag.
bool holds_checkpoint(const std::string& dir);

}  // namespace dslaunch::runtime::deepspeed
