// Advice about an error in a model's forward, recognised by its message. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

// A sentence to append to `cause`; empty if there is no advice. `inputs`: the inputs of forward. Uses this thread's
// current autocast state for `device`.
std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, const ParameterTable& table,
                           at::DeviceType device);

}  // namespace dslaunch::runtime
