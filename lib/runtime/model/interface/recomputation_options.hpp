// How units are recomputed in backward; plain data.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime::model {

struct RecomputationOptions {
  std::optional<int64_t> number_checkpoints;  // groups that are recomputed as a whole; empty: see units_per_group
  int64_t units_per_group = 1;                // the last group may have fewer
  bool cpu_checkpointing = false;             // saved inputs are kept in host memory
  bool contiguous_memory = false;             // saved inputs are kept in one buffer
  bool synchronize = false;                   // wait for the device before and after each pass
  bool profile = false;                       // time both passes, which also waits for the device
  c10::Device device = c10::kCPU;
};

}  // namespace dslaunch::runtime::model
