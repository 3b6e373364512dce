// DeepSpeed's estimates of the memory that parameters, gradients and optimizer state need, which its users know from
// estimate_zero2_model_states_mem_needs() and estimate_zero3_model_states_mem_needs() (DeepSpeed 0.18,
// runtime/zero/stage_1_and_2.py and stage3.py): mixed precision with Adam, 2 bytes for a parameter, 2 + 4 for its
// gradient, 4 + 8 for master and moments; activations come on top. They are of DeepSpeed, not of this runtime. Pure;
// any thread.
#pragma once
#include <cstdint>
#include <vector>

namespace dslaunch::runtime::memory_plan {

struct EstimateInputs {
  int64_t num_parameters = 0;
  int64_t largest_layer = 0;  // parameters of the largest layer; stage 3 only
  int gpus_per_host = 1, num_hosts = 1;
  double buffer_factor = 1.5;  // host memory beyond the state itself
};

// Bytes: double, because 1e12 parameters on many hosts exceed no range and need no exact unit.
struct Estimate {
  bool offloads_parameters = false, offloads_optimizer = false;
  bool builds_sharded = false;  // stage 3: under zero.Init, so that no process holds the whole model when it starts
  double host_bytes = 0;        // of each host
  double gpu_bytes = 0;         // of each GPU
};

// In the order of DeepSpeed's tables.
std::vector<Estimate> estimate_zero2(const EstimateInputs& inputs);
std::vector<Estimate> estimate_zero3(const EstimateInputs& inputs);

}  // namespace dslaunch::runtime::memory_plan
