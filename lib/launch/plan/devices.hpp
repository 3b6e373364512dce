// The GPUs of this machine that a job may use: counted through NVML, which is loaded at run time, and restricted by
// CUDA_VISIBLE_DEVICES with CUDA's semantics.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

struct Gpu {
  std::string uuid;  // "GPU-..."
  std::string name;
  std::string pci_bus_id{};  // "00000000:3B:00.0"; empty: unknown
};

// What the driver reports about this machine's GPUs; all empty without a driver. (nvml.cpp)
struct GpuSurvey {
  std::vector<Gpu> gpus;
  std::string error{};  // set when the driver is present but does not answer, or not for every GPU; empty: no error
};
GpuSurvey survey_gpus();

// A process with memory on a GPU, as the driver reports it: inside a container its pid may be the host's.
struct GpuProcess {
  pid_t pid = -1;
  size_t device = 0;
  uint64_t num_bytes = 0;  // 0: the driver does not report it
};

// Empty without a driver. (nvml.cpp)
std::vector<GpuProcess> gpu_processes();

// The present use of a GPU, by whatever programs. -1: the driver does not report it.
struct GpuUse {
  std::string uuid;
  int percent = -1;
  int64_t used_bytes = -1, total_bytes = -1;
};

// Keeps the driver's library open between readings, since opening it takes long. One thread. (nvml.cpp)
class GpuMeter {
 public:
  GpuMeter();
  ~GpuMeter();
  // By the driver's index; empty without a driver.
  std::vector<GpuUse> read() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

// The visible devices in CUDA's order, each as CUDA_VISIBLE_DEVICES would name it alone. `variable` is the value of
// CUDA_VISIBLE_DEVICES; empty optional: not set, all devices are visible. A list ends before its first invalid entry; a
// device named twice hides all.
std::vector<std::string> visible_devices(const std::vector<Gpu>& gpus, const std::optional<std::string>& variable);

struct DeviceSituation {
  size_t num_present = 0;            // installed in the machine
  std::vector<std::string> visible;  // by slot
  std::string error{};               // GpuSurvey's, unless CUDA_VISIBLE_DEVICES selects no GPU

  // No GPU is usable because of an error.
  bool none_answers() const { return visible.empty() && !error.empty(); }
};
DeviceSituation look_for_devices();

// Our worker needs a build with CUDA to use GPUs; a user's program brings its own CUDA.
enum class DeviceUser { kOurWorker, kAnyProgram };

// "cuda" or "cpu". Throws UserError(69) for cuda without a device, for GPUs that do not answer unless the CPU was
// requested, and for a build without CUDA where GPUs would be used.
std::string choose_device(DeviceChoice choice, const DeviceSituation& situation, DeviceUser user);

}  // namespace dslaunch::launch
