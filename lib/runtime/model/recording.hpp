// What a model does on the host in its forward. A device that records a run and replays it repeats what the device did;
// what the host did stays as it was in the recorded run, and nothing would say so.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "runtime/model/mutation_analysis.hpp"

namespace dslaunch::runtime {

// State that forward changes and that is no tensor, so that it lies on the host.
struct HostState {
  std::vector<std::string> changed;  // attributes by path: "blocks.0.count"
  bool is_understood = true;         // false: forward calls what cannot be seen before it runs, so there may be more
};

// `effects`: what scan_forward_effects() says of this very module.
HostState find_host_state(const torch::jit::Module& module, const ForwardEffects& effects);

// The first thing that speaks against recording, as a sentence ("the model sets its attribute 'count'"); empty: none.
// Reads all methods that a run may meet, on the careful side, and takes `state` into account, which sees through
// aliases; without it (a loss from a file) only what the methods themselves name is seen. Numbers that the host draws,
// and tensors that it reads from the device, show when the run is recorded.
std::string recording_obstacle(const torch::jit::Module& model, const HostState& state = {});

}  // namespace dslaunch::runtime
