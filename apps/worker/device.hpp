// The device on which a rank computes.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/launch_env.hpp"

namespace dslaunch::worker {

// `requested_device`: "auto" | "cpu" | "cuda". With CUDA: loads the CUDA module and takes device local_rank, or device
// 0 if the launcher made only one visible. `ended` is told each part of it when it is done. Throws UserError(69) when
// the CUDA module, a driver or a device is missing.
at::Device open_device(const std::string& requested_device, const rendezvous::LaunchEnv& env,
                       const std::function<void(const char*)>& ended = {});

// Of the first GPU that is visible; empty without a GPU, or without what it takes to ask it.
std::optional<int64_t> gpu_memory_of_this_machine();

}  // namespace dslaunch::worker
