// Whole weights out of a sharded checkpoint, in the model's own dtypes. One thread.
#pragma once
#include <string>

namespace dslaunch::runtime {

// `checkpoint`: a checkpoint or a folder of them (then the newest). `out` decides the form by its ending:
//   .safetensors            all parameters and buffers, one tensor in memory at a time
//   .pt                     the model as TorchScript with the trained weights; the whole model in memory
//   .pt with `state_dict`   name -> tensor, for torch.load(weights_only=True)
// Tied parameters appear under each of their names. Written aside and renamed.
// Throws UserError: 64 for another ending, 66 and 65 for the checkpoint; SystemError 73, 74 for the output.
void consolidate(const std::string& checkpoint, const std::string& out, bool state_dict);

}  // namespace dslaunch::runtime
