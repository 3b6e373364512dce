// Reads torch.jit.save files through a memory mapping: tensors point into the page cache, private and copy-on-write, so
// that N local ranks share one copy. Any thread; the mapping lives as long as any tensor that uses it.
#pragma once
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::model::file {

// Throws UserError: 66 when the file cannot be read; 65 when the file is not TorchScript, saying what it looks like (a
// state-dict, a .pt2 export, Python source, a truncated archive) and what to do instead.
// TorchScript's autocast pass leaves the module's functions alone.
torch::jit::Module load_mapped_module(const std::string& path);

// The parameter or buffer whose values are in a record of the file ("archive/data/12"); empty: none, or the file cannot
// be read. For messages: loads the module.
std::string tensor_in_record(const std::string& path, const std::string& record);

// Files that PyTorch tools have prepared for inference: quantized, packed for mobile processors, rewritten for oneDNN.
// They are recognised by calls to operators without a gradient. Any thread.

// Describes the file as the end of a sentence, with what to save instead; empty for all others, also damaged ones.
std::string describe_inference_file(caffe2::serialize::PyTorchStreamReader& reader);

// Throws UserError(65) with that description for such a file: its parameters, if it has any, would get no gradients or
// wrong ones.
void refuse_inference_file(const std::string& path);

// A model's code and buffers with all parameters emptied, a few kB: a checkpoint's part of the model file.
//
// Empties the parameters of `module`. `metadata`: of its model file, kept in the skeleton. Throws SystemError when the
// file cannot be written.
void write_skeleton_file(const torch::jit::Module& module, const ModelMetadata& metadata, const std::string& path);

}  // namespace dslaunch::runtime::model::file
