// The GPUs of this machine that a job may use: counted through NVML, which is opened at run time, and narrowed by
// CUDA_VISIBLE_DEVICES as CUDA itself does.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch_options.hpp"

namespace dslaunch::launch {

struct Gpu {
  std::string uuid;  // "GPU-..."
  std::string name;
  std::string pci_bus_id{};  // "00000000:3B:00.0"; empty: unknown
};

// What the driver says of this machine's GPUs; nothing at all where there is none. (nvml.cpp)
struct GpuSurvey {
  std::vector<Gpu> gpus;
  std::string trouble{};  // of a driver that is there and does not answer, or not for every GPU; empty: none
};
GpuSurvey survey_gpus();

// A process with memory on a GPU, as the driver counts it: inside a container its pid may be the host's.
struct GpuProcess {
  pid_t pid = -1;
  size_t device = 0;
  uint64_t num_bytes = 0;  // 0: the driver does not say
};

// Empty where there is no driver. (nvml.cpp)
std::vector<GpuProcess> gpu_processes();

// The visible devices in CUDA's order, each as CUDA_VISIBLE_DEVICES would name it alone. `variable`: its value; empty
// optional: not set, all are visible. A list ends before its first invalid entry; a device named twice hides all.
std::vector<std::string> visible_devices(const std::vector<Gpu>& gpus, const std::optional<std::string>& variable);

struct DeviceSituation {
  size_t num_present = 0;            // in the machine
  std::vector<std::string> visible;  // by slot
  std::string trouble{};             // GpuSurvey's, unless CUDA_VISIBLE_DEVICES wants no GPU

  // There is none to use, and that is not how it should be.
  bool none_answers() const { return visible.empty() && !trouble.empty(); }
};
DeviceSituation look_for_devices();

// Our own worker needs a build with CUDA for them, a program of the user brings its own.
enum class DeviceUser { kOurWorker, kAnyProgram };

// "cuda" or "cpu". Throws UserError(69): cuda without a device, GPUs that do not answer unless the CPU is asked for, or
// a build without CUDA where GPUs would be used.
std::string choose_device(DeviceChoice choice, const DeviceSituation& situation, DeviceUser user);

}  // namespace dslaunch::launch
