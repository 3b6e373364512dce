// Advice about an error in a model's forward, recognised by its message. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace dslaunch::runtime::model::script {

// A sentence to append to `cause`; empty without advice. `inputs`: the inputs of forward. `is_half_file`: the
// model's file has parameters in half precision. Uses this thread's current autocast state for `device`.
std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, bool is_half_file,
                           at::DeviceType device);

}  // namespace dslaunch::runtime::model::script
