// The activations of a micro batch, measured: one rank with the whole model and the plainest optimizer runs two steps
// on the device that is there. On the engine's thread; no other tensors of the process may come and go meanwhile.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/device/device.hpp"
#include "runtime/memory_plan/rank_memory.hpp"

namespace dslaunch::runtime::engine::plan {

// What a rank needs beside its state at the times of a step: the most of forward, then in backward the most between one
// gradient buffer's allocation and the next, and what is left of them when it ends. Backward begins with all that
// forward has saved and the gradient of the loss's input beside it, often the most of a step, and without gradients of
// parameters. Memory that the first step takes for good (workspaces of libraries) is in all that follows.
//
// `alone`: a communicator of size 1 on the device. The config's data, loss, precision, recomputation and micro batch
// count; "auto" precision is that of the device. On the host CPU tensors are counted as PyTorch's allocator gives them
// out. Throws UserError as a run does for a model, data or a config that do not belong together, and OutOfMemoryError.
std::vector<memory_plan::StepPoint> measure_activations(const std::string& model_path, config::JobConfig config,
                                                        const device::Device& device, comm::Communicator& alone);

}  // namespace dslaunch::runtime::engine::plan
