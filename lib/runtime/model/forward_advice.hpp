// What to do about an error that a model's forward met, known by its words. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

// A sentence that goes on behind `cause`; empty where there is nothing to add. `inputs`: what forward was given.
// Autocast counts as it stands on this thread for `device`.
std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, const ParameterTable& table,
                           at::DeviceType device);

}  // namespace dslaunch::runtime
