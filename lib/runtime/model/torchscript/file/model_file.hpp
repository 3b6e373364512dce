// Reads torch.jit.save files through a memory mapping: tensors point into the page cache, private and copy-on-write, so
// that N local ranks share one copy. Any thread; the mapping lives as long as any tensor that uses it.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace dslaunch::runtime::model::file {

// Throws UserError: 66 when the file cannot be read; 65 when the file is not TorchScript, saying what it looks like (a
// state-dict, a .pt2 export, Python source, a truncated archive) and what to do instead.
// TorchScript's autocast pass leaves the module's functions alone.
torch::jit::Module load_mapped_module(const std::string& path);

// The parameter or buffer whose values are in a record of the file ("archive/data/12"); empty: none, or the file cannot
// be read. For messages: loads the module.
std::string tensor_in_record(const std::string& path, const std::string& record);

}  // namespace dslaunch::runtime::model::file
