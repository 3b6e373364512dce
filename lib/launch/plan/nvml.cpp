// The few calls of NVML that count GPUs, locate them and list the processes on them, loaded at run time: a host without
// a driver does not have the library.
#include <dlfcn.h>

#include "base/blocked_signals.hpp"
#include "base/format.hpp"
#include "launch/plan/devices.hpp"

namespace dslaunch::launch {
namespace {

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    find(shutdown_, "nvmlShutdown");
    find(count_, "nvmlDeviceGetCount_v2");
    find(handle_, "nvmlDeviceGetHandleByIndex_v2");
    find(uuid_, "nvmlDeviceGetUUID");
    find(name_, "nvmlDeviceGetName");
    find(pci_, "nvmlDeviceGetPciInfo_v3");
    find(compute_processes_, "nvmlDeviceGetComputeRunningProcesses_v3");
    find(error_string_, "nvmlErrorString");
    find(utilization_, "nvmlDeviceGetUtilizationRates");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    int (*init)() = nullptr;
    find(init, "nvmlInit_v2");
    if (!init || !shutdown_ || !count_ || !handle_ || !uuid_ || !name_) return;
    begun_ = init();
    open_ = begun_ == kSuccess;
  }
  ~Nvml() {
    if (open_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  GpuSurvey survey() const {
    if (!open_) return {{}, is_none_for_us(begun_) ? "" : driver_error(begun_)};
    unsigned count = 0;
    if (int status = count_(&count); status != kSuccess) return {{}, driver_error(status)};
    GpuSurvey found;
    unsigned num_lost = 0;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      char uuid[96] = {}, name[96] = {};
      int status = handle_(i, &device);
      if (status == kSuccess) status = uuid_(device, uuid, sizeof uuid);
      if (status == kSuccess) {
        name_(device, name, sizeof name);
        found.gpus.push_back({uuid, name, pci_bus_id(device)});
      } else if (status != kNoPermission && ++num_lost == 1) {  // a container is denied access to GPUs of others
        found.error = fmt::format("GPU {} of {} does not answer: NVML says \"{}\"", i, count, error_text(status));
      }
    }
    if (num_lost > 1) found.error += fmt::format("; {} more do not answer either", num_lost - 1);
    return found;
  }

  std::vector<GpuProcess> processes() const {
    unsigned count = 0;
    if (!open_ || !compute_processes_ || count_(&count) != kSuccess) return {};
    std::vector<GpuProcess> all;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      if (handle_(i, &device) == kSuccess) append_processes(device, i, all);
    }
    return all;
  }

  std::vector<GpuUse> use() const {
    unsigned count = 0;
    if (!open_ || count_(&count) != kSuccess) return {};
    std::vector<GpuUse> all(count);
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      if (handle_(i, &device) == kSuccess) all[i] = use_of(device);
    }
    return all;
  }

 private:
  // nvmlUtilization_t, nvmlMemory_t.
  struct Utilization {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  GpuUse use_of(void* device) const {
    GpuUse out;
    char uuid[96] = {};
    if (uuid_(device, uuid, sizeof uuid) == kSuccess) out.uuid = uuid;
    Utilization utilization{};
    if (utilization_ != nullptr && utilization_(device, &utilization) == kSuccess && utilization.gpu <= 100) {
      out.percent = static_cast<int>(utilization.gpu);
    }
    Memory memory{};
    if (memory_ != nullptr && memory_(device, &memory) == kSuccess) {
      out.used_bytes = static_cast<int64_t>(memory.used);
      out.total_bytes = static_cast<int64_t>(memory.total);
    }
    return out;
  }

  static constexpr int kSuccess = 0, kNoPermission = 4, kInsufficientSize = 7, kDriverNotLoaded = 9,
                       kLibraryNotFound = 12, kBlocked = 17, kVersionMismatch = 18, kGpuNotFound = 28;

  // NVML, or a toolkit's stub of it, may be installed without a driver. And a job whose cgroup denies access to the
  // GPUs is meant to run without them.
  static bool is_none_for_us(int status) {
    return status == kSuccess || status == kNoPermission || status == kDriverNotLoaded || status == kLibraryNotFound ||
           status == kBlocked || status == kGpuNotFound;
  }

  std::string error_text(int status) const {
    return error_string_ != nullptr ? error_string_(status) : fmt::format("error {}", status);
  }

  std::string driver_error(int status) const {
    return fmt::format("the NVIDIA driver does not answer: NVML says \"{}\"{}", error_text(status),
                       status == kVersionMismatch
                           ? " (the driver was upgraded and the kernel has the old one: reboot, or reload it)"
                           : "");
  }

  // nvmlProcessInfo_t.
  struct RunningProcess {
    unsigned pid;
    unsigned long long used_bytes;  // all ones: not available
    unsigned gpu_instance, compute_instance;
  };

  void append_processes(void* device, size_t index, std::vector<GpuProcess>& all) const {
    std::vector<RunningProcess> running(64);
    unsigned count = static_cast<unsigned>(running.size());
    // More processes may start between the two calls; they are left out.
    if (int status = compute_processes_(device, &count, running.data()); status == kInsufficientSize) {
      running.resize(count + 64);
      count = static_cast<unsigned>(running.size());
      if (compute_processes_(device, &count, running.data()) != kSuccess) return;
    } else if (status != kSuccess) {
      return;
    }
    for (unsigned i = 0; i < count; ++i) {
      uint64_t bytes = running[i].used_bytes == ~0ULL ? 0 : running[i].used_bytes;
      all.push_back({static_cast<pid_t>(running[i].pid), index, bytes});
    }
  }

  // nvmlPciInfo_t, version 3.
  struct PciInfo {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };

  std::string pci_bus_id(void* device) const {
    PciInfo info{};
    return pci_ != nullptr && pci_(device, &info) == kSuccess ? info.bus_id : "";
  }

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  const BlockedSignals blocked_;  // the driver leaves a thread running that would otherwise receive our signals
  void* library_;
  bool open_ = false;
  int begun_ = kSuccess;  // the result of nvmlInit
  const char* (*error_string_)(int) = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, void**) = nullptr;
  int (*uuid_)(void*, char*, unsigned) = nullptr;
  int (*name_)(void*, char*, unsigned) = nullptr;
  int (*pci_)(void*, PciInfo*) = nullptr;  // available from driver 410 on
  int (*utilization_)(void*, Utilization*) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  int (*compute_processes_)(void*, unsigned*, RunningProcess*) = nullptr;
};

}  // namespace

GpuSurvey survey_gpus() {
  return Nvml().survey();
}

std::vector<GpuProcess> gpu_processes() {
  return Nvml().processes();
}

class GpuMeter::Library : public Nvml {};

GpuMeter::GpuMeter() : library_(std::make_unique<Library>()) {}
GpuMeter::~GpuMeter() = default;

std::vector<GpuUse> GpuMeter::read() const {
  return library_->use();
}

}  // namespace dslaunch::launch
