// A model with the weights of a checkpoint, ready to call; for inference, without an engine. One thread.
#pragma once
#include <memory>
#include <string>

#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::inference {

class CheckpointModel {
 public:
  virtual ~CheckpointModel() = default;
  virtual model::Model& model() = 0;
  // Where the tokenizer of the model is, as the model file's record says: "'/models/llama'", "'gpt2' of the hub";
  // empty: it says nothing.
  virtual std::string tokenizer() const = 0;
};

// `path`: a checkpoint, or a directory of checkpoints (the newest is taken). On the host, in the model's own dtypes.
// `directory`: where the parameters rest, in a file without a name, and units read them as they run; empty: they are in
// memory. Throws SystemError and Error as offload::ParameterFile does.
std::unique_ptr<CheckpointModel> load_checkpoint_model(const std::string& path, const std::string& directory = {});

}  // namespace dslaunch::runtime::engine::inference
