// Times and memory of a generation. Plain data and its text.
#pragma once
#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dslaunch::runtime::engine::inference {

struct InferReport {
  using Seconds = std::chrono::duration<double>;

  int64_t num_prompts = 0, prompt_tokens = 0, new_tokens = 0;
  std::vector<Seconds> first_tokens;  // by prompt: from its start to its first token
  std::vector<Seconds> decode_steps;  // passes after that, each of one token of every text
  Seconds total{0};
  int64_t read_bytes = 0;  // of weights, keys and values, by all decode steps; 0: not known
  double memory_rate = 0;  // bytes per second that copies read and write (memory_rate.hpp); 0: not measured
  int64_t weight_bytes = 0, cache_bytes = 0;  // the cache: at most
  std::string weight_types;                   // "bf16", "int8, bf16"; empty: not known
  int64_t peak_bytes = 0;                     // of the process on the host, or of the device
  int tensor_ranks = 1;
  std::string small_sums = {};  // of tensor ranks (Communicator::small_sums); empty: as all others
  std::string steps = "off";    // "on the device", "captured" (as a CUDA graph), "off"
  std::string kernels;          // of a step, as a table; empty: not profiled
  std::string cache;            // "on", or why it is off
};

// The smallest value of which at least the share `quantile` of `values` are not larger; 0 without values.
double percentile(std::vector<InferReport::Seconds> values, double quantile);

nlohmann::json as_json(const InferReport& report);
// A few lines.
std::string as_text(const InferReport& report);

}  // namespace dslaunch::runtime::engine::inference
