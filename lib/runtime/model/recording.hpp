// What a model does on the host in its forward. A device that records a run and replays it repeats what the device did;
// what the host did stays as it was in the recorded run, and nothing would say so.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace dslaunch::runtime {

// The first thing that speaks against recording, as a part of a sentence ("forward sets its attribute 'count'"); empty:
// none. Reads all methods that a run may meet, on the careful side. Numbers that the host draws, and tensors that it
// reads from the device, show when the run is recorded.
std::string recording_obstacle(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
