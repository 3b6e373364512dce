// The activations of a micro batch, measured: one rank with the whole model and the plainest optimizer runs two steps
// on the device that is there. On the engine's thread; no other tensors of the process may come and go meanwhile.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"

namespace dslaunch::runtime::engine::plan {

struct MeasuredActivations {
  int64_t saved_bytes = 0;     // at the end of forward: what backward needs
  int64_t forward_peak = 0;    // the most during forward, saved ones included
  int64_t backward_peak = 0;   // the most during backward, with the fp32 gradients that it leaves
  int64_t gradient_bytes = 0;  // those gradients
};

// What a rank needs for activations beside its state. Backward begins with all that forward has saved, and the gradient
// of the loss's input beside it, often the most of a step. All gradients are taken off its peak: those that it did not
// have at that time are missing here.
int64_t activation_bytes(const MeasuredActivations& measured);

// `alone`: a communicator of size 1 on the device. The config's data, loss, precision, recomputation and micro batch
// count; "auto" precision is that of the device. On the host CPU tensors are counted as PyTorch's allocator gives them
// out. Throws UserError as a run does for a model, data or a config that do not belong together, and OutOfMemoryError.
MeasuredActivations measure_activations(const std::string& model_path, config::JobConfig config, at::Device device,
                                        comm::Communicator& alone);

}  // namespace dslaunch::runtime::engine::plan
