// The device on which a rank computes.
#pragma once
#include <c10/core/Device.h>

#include <string>

#include "rendezvous/launch_env.hpp"

namespace dslaunch::worker {

// `requested_device`: "auto" | "cpu" | "cuda". With CUDA: loads the CUDA module and takes device local_rank, or device
// 0 if the launcher made only one visible. Throws UserError(69) when there is no CUDA module, driver or device.
at::Device open_device(const std::string& requested_device, const rendezvous::LaunchEnv& env);

}  // namespace dslaunch::worker
