// Writes weights of a checkpoint as files in PyTorch's formats. Both functions stay within the stream's memory limit,
// write tied parameters under each of their names, and flush. They throw UserError(65) when a part is missing or
// damaged, SystemError (73, 74), and LibTorch's exceptions. One thread.
#pragma once
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/weight_stream.hpp"

namespace dslaunch::runtime {

// A dict from names to tensors, as torch.load(weights_only=True) accepts it.
void write_state_dict(WeightStream& weights, const std::vector<const SavedTensor*>& tensors, const std::string& path);

// The checkpoint's model.pt with its weights. Returns whether it is in train mode, as was the file that training began
// with. Throws UserError(65) also when the checkpoint has no model.pt.
bool write_torchscript(CheckpointReader& checkpoint, WeightStream& weights, const std::string& path);

}  // namespace dslaunch::runtime
