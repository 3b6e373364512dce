// From options to hosts: hostfile, filters and the devices of this machine.
#pragma once
#include "hostfile/allocation.hpp"
#include "launch/devices.hpp"
#include "launch/launch_options.hpp"

namespace dslaunch::launch {

struct ResolvedHosts {
  hostfile::Allocation allocation;
  std::string device;                // cpu | cuda
  std::vector<std::string> visible;  // devices of this machine by slot
};

// `need_cuda_build`: see choose_device. Throws UserError: 69 for fewer GPUs or slots than asked for, or a host that is
// not this machine; 64, 65, 66 as hostfile::resolve.
ResolvedHosts resolve_hosts(const LaunchOptions& options, bool need_cuda_build);

// The allocation alone, for `dslaunch hosts`: remote hosts are welcome.
hostfile::Allocation resolve_allocation(const LaunchOptions& options, const DeviceSituation& situation,
                                        const std::string& device);

}  // namespace dslaunch::launch
