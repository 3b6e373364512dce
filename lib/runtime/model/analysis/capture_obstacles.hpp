// Work that a model does on the host in its forward. A replay of a captured run repeats the work of the device; the
// host's work keeps the results of the captured run, without any error.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph/aliases.hpp"

namespace dslaunch::runtime::model::analysis {

// State that forward changes and that is not a tensor, so it is on the host.
struct HostState {
  std::vector<std::string> changed;  // attributes by path: "blocks.0.count"
  bool is_analyzable = true;  // false: forward calls code that cannot be analyzed before it runs, so there may be more
};

// `effects`: the result of scan_forward_effects() for this module.
HostState find_host_state(const torch::jit::Module& module, const graph::ForwardEffects& effects);

// Whether a run may be captured and replayed; the error is the first obstacle, as a sentence ("the model sets its
// attribute 'count'"). Examines all methods that a run may reach, conservatively, and takes `state` into account, which
// sees through aliases; without `state` (a loss from a file) only effects that the methods themselves name are found.
// Random numbers drawn on the host, and tensors read back from the device, are detected during capture.
Result<> check_capturable(const torch::jit::Module& model, const HostState& state = {});

}  // namespace dslaunch::runtime::model::analysis
