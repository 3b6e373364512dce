// Optimizers over flat shards: each element of the fp32 master is updated from the same element of the gradient and the
// moments, so a shard may be cut anywhere and the result is the same bit by bit, for any number of threads as well.
// Host tensors are updated before the call returns; CUDA tensors on the current stream, without a host synchronisation:
// factor, skip and count of applied steps are read there by the kernels.
// One thread at a time for one optimizer; optimizers carry no state of their own (it lies in the moments).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::optim {

// One slice of the flat parameters: 1-D contiguous tensors of one length on one device.
struct ShardTensors {
  at::Tensor master;                // fp32, updated
  at::Tensor gradient;              // fp32, read only
  at::Tensor low_precision;         // undefined, or bf16 or fp16: the new master, rounded, written in the same pass
  std::vector<at::Tensor> moments;  // fp32, in the order of moment_names(); zeros before the first step
};

// What the schedule gives to the `step`-th applied step, counted from 1 (bias correction, first momentum).
struct StepRates {
  int64_t step = 1;
  double lr = 0.0;
};

// A device does not tell in time whether its last steps were skipped, so the host may not know how many were applied.
// Then `rates` holds one entry for each count that is possible, with consecutive steps, and the device picks by its own
// counter: the entry whose step is *applied_steps + 1. It must be there; an update that finds none stops with an error
// (host) or a trap (device).
struct StepInputs {
  std::vector<StepRates> rates;  // one, or with applied_steps at least one
  at::Tensor applied_steps;      // 0-dim int64 on the shard's device, this step not counted; undefined: rates[0] it is
  at::Tensor gradient_factor;    // 0-dim fp32 on the shard's device (averaging, clipping); undefined: 1
  at::Tensor skip;  // 0-dim fp32 on the shard's device; undefined or 0: a step like any other; else nothing
                    // is written: neither master nor moments nor the low-precision copy
};

class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;
  // The names under which a checkpoint keeps the moments; empty for an optimizer without state.
  virtual const std::vector<std::string>& moment_names() const = 0;
  // Throws InternalError for tensors that do not fit together, UserError 69 for CUDA tensors without the CUDA module.
  virtual void step(const ShardTensors& shard, const StepInputs& inputs) const = 0;
};

// Adam and AdamW (moments exp_avg, exp_avg_sq) and SGD (momentum, if it is not 0), with the arithmetic of torch.optim.
// Throws UserError 65 for Nesterov momentum without momentum or with dampening.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const config::Optimizer& settings);

}  // namespace dslaunch::runtime::optim
