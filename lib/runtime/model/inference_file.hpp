// Files that torch's tools have made for inference: quantized, packed for mobile processors, rewritten for oneDNN.
// Their code calls operators without a gradient, by which they are known. Any thread.
#pragma once
#include <caffe2/serialize/inline_container.h>

#include <string>

namespace dslaunch::runtime {

// What the file is, as the end of a sentence about it and with what to save instead; empty for all others,
// damaged ones too.
std::string describe_inference_file(caffe2::serialize::PyTorchStreamReader& reader);

// Throws UserError(65) with those words for such a file: its parameters, where it has any, would get no gradients or
// wrong ones.
void refuse_inference_file(const std::string& path);

}  // namespace dslaunch::runtime
