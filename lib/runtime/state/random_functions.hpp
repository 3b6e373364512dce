// The function table that the CUDA module provides for random_state.hpp: a device's random numbers while its work is
// captured as a CUDA graph. There the generator's state lies on the device and is read at each replay; the host knows
// how far into the graph's random numbers the captured work has come.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace dslaunch::runtime {

struct RandomFunctions {
  // Whether work on the current stream of this device is being captured.
  bool (*is_capturing)(c10::Device device);
  // Only while it is: the offset of the next random numbers from the graph's first ones.
  uint64_t (*captured_offset)(c10::Device device);
  void (*set_captured_offset)(c10::Device device, uint64_t offset);
};

inline constexpr char kRandomFunctionsSymbol[] = "dslaunch_cuda_random_functions";

// Loads the CUDA module on the first call; throws UserError where it cannot be loaded.
const RandomFunctions& random_functions();

}  // namespace dslaunch::runtime
