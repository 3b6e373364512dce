// Reading what torch.jit.save wrote through a mapping of the file: tensors point into the page cache, private and
// copied on write, so that N local ranks share one copy. Any thread; the mapping lives as long as a tensor of it.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace dslaunch::runtime {

// Throws UserError: 66 when the file cannot be read; 65 when it is something else than TorchScript, and says what it
// looks like (a state-dict, a .pt2 export, Python source, a truncated archive) and what to do instead.
torch::jit::Module load_mapped_module(const std::string& path);

}  // namespace dslaunch::runtime
