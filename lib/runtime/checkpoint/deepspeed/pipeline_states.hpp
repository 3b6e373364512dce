// A pipeline's checkpoint as one model. DeepSpeed saves the weights of each layer in a file of its own, and what else
// it knows of parameters stage by stage, under the names of a stage: LAYER.NAME, and tied_modules.KEY.NAME for a module
// that is several layers. Here all of them have the names LAYER.NAME, a tied one that of its first layer. One thread.
#pragma once
#include <map>
#include <vector>

#include "runtime/checkpoint/deepspeed/checkpoint_files.hpp"
#include "runtime/checkpoint/deepspeed/model_states.hpp"

namespace dslaunch::runtime::deepspeed {

struct StageStates {
  TorchFile file;
  ModelStates model;                   // of this stage; its trained parameters by their names in the whole model
  std::vector<TorchFile> optim_files;  // by data rank; empty without ZeRO
};

class PipelineStates {
 public:
  // Throws UserError(65) naming the file: a layer or a stage is missing, a layer does not hold what its stage lists,
  // stages are of different steps, or it cannot be told which layers are one tied module.
  PipelineStates(const CheckpointFiles& files, bool check_sums);
  PipelineStates(const PipelineStates&) = delete;
  PipelineStates& operator=(const PipelineStates&) = delete;

  // The weights of all layers, the trained parameters of all stages; counters and config as in stage 0.
  const ModelStates& model() const { return model_; }
  const std::vector<StageStates>& stages() const { return stages_; }

 private:
  std::map<int, TorchFile> layers_;  // these files stay where they are: the model states point to them
  std::vector<StageStates> stages_;
  ModelStates model_;
};

}  // namespace dslaunch::runtime::deepspeed
