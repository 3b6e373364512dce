// Files that PyTorch tools have prepared for inference: quantized, packed for mobile processors, rewritten for oneDNN.
// They are recognised by calls to operators without a gradient. Any thread.
#pragma once
#include <caffe2/serialize/inline_container.h>

#include <string>

namespace dslaunch::runtime::model::file {

// Describes the file as the end of a sentence, with what to save instead; empty for all others, also damaged ones.
std::string describe_inference_file(caffe2::serialize::PyTorchStreamReader& reader);

// Throws UserError(65) with that description for such a file: its parameters, if it has any, would get no gradients or
// wrong ones.
void refuse_inference_file(const std::string& path);

}  // namespace dslaunch::runtime::model::file
