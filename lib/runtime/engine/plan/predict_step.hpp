// How long a step will take, from rates of the hardware: a bound on each resource, added where one waits for the other
// and taken as the longest where they overlap. For comparing settings of one job, not for promising times. Pure.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

#include "config/job_config.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::engine::plan {

// Per second. What a job does not use may be 0.
struct Rates {
  double flops = 0;          // of a rank's device, in matrix products of the compute type
  double device_bytes = 0;   // of a rank's device memory
  double link_bytes = 0;     // between a rank's device and the host, each way
  double host_bytes = 0;     // of the host's memory, for all its ranks together
  double network_bytes = 0;  // that a rank sends in collectives, while it receives as many
  double file_bytes = 0;     // of the host's files, for all its ranks together
};

// Of network_bytes for the ranks of one host, where it is not known: GPUs send at least as fast as they copy to the
// host (NVLink is faster); between processes on CPUs a byte is copied twice, and each copy reads and writes host
// memory, which all ranks share.
double rate_within_host(const Rates& rates, c10::Device device, int ranks_of_host);

// Of a rank: of its stage of a pipeline.
struct StepWork {
  int64_t num_parameters = 0, num_trained = 0;
  int64_t positions_per_sample = 1;
  int64_t compute_size = 4;  // bytes of an element of the compute type
  int num_data_ranks = 1, ranks_of_host = 1;
  double share_kept = 0;        // of what stage 3 gathers for a forward: what its backward finds gathered
  int64_t attention_width = 0;  // summed over the layers that have attention; their keys are the sample's positions
  int tensor_ranks = 1;
  int64_t reduced_width = 0;  // features of the sums over the tensor ranks, of all products of a position
  double tensor_bytes = 0;    // that a rank sends to its tensor group, per second
};

// The width of attention, summed over the modules of a model that are named after it ("attn", "attention").
int64_t count_attention_width(const ParameterTable& table);

struct StepTimes {  // seconds
  double compute = 0;
  double communication = 0;  // collectives, hidden or not
  double update = 0;         // of the optimizer
  double transfers = 0;      // between host, files and device
  double step = 0;           // with what overlaps
};

// Compute: 6 FLOPs for a parameter and a position, 8 with recomputation, and attention with all keys, as FLOPs are
// reported: kernels that leave out what causal attention does not need take about as long for it. Communication: what
// each stage of ZeRO moves (docs/zero.md). A pipeline's bubble is that of its schedule with stages that take as long as
// this one; its transfers are not counted. An update moves 28 bytes a parameter. Tensor ranks add up the results of
// split products in forward and the gradients of their inputs in backward, where half of the time (the gradients of the
// weights) may hide it.
StepTimes predict_step(const config::JobConfig& config, const StepWork& work, const Rates& rates);

}  // namespace dslaunch::runtime::engine::plan
