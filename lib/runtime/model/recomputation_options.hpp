// How units are recomputed in backward; plain data.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime {

struct RecomputationOptions {
  std::optional<int64_t> number_checkpoints;  // units that are recomputed, from the first; empty: all
  bool cpu_checkpointing = false;             // saved inputs wait in host memory
  bool contiguous_memory = false;             // saved inputs lie in one buffer
  bool synchronize = false;                   // wait for the device before and after each pass
  bool profile = false;                       // time both passes, which waits for the device too
  c10::Device device = c10::kCPU;
};

}  // namespace dslaunch::runtime
