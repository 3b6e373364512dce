// A model with the weights of a checkpoint, ready to call; for inference, without an engine. One thread.
#pragma once
#include <memory>
#include <string>

#include "runtime/model/model.hpp"

namespace dslaunch::runtime::engine::inference {

class CheckpointModel {
 public:
  virtual ~CheckpointModel() = default;
  virtual model::Model& model() = 0;
};

// `path`: a checkpoint, or a directory of checkpoints (the newest is taken). On the host, in the model's own dtypes.
std::unique_ptr<CheckpointModel> load_checkpoint_model(const std::string& path);

}  // namespace dslaunch::runtime::engine::inference
