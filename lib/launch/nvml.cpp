// The few calls of NVML that count GPUs and say where they are, found at run time: a host without a driver has no such
// library.
#include <dlfcn.h>

#include <memory>

#include "launch/devices.hpp"

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
    int (*init)() = nullptr;
    find(init, "nvmlInit_v2");
    open_ = init && shutdown_ && count_ && handle_ && uuid_ && name_ && init() == kSuccess;
  }
  ~Nvml() {
    if (open_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<Gpu> gpus() const {
    unsigned count = 0;
    if (!open_ || count_(&count) != kSuccess) return {};
    std::vector<Gpu> all;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      char uuid[96] = {}, name[96] = {};
      if (handle_(i, &device) != kSuccess || uuid_(device, uuid, sizeof uuid) != kSuccess) continue;
      name_(device, name, sizeof name);
      all.push_back({uuid, name, pci_bus_id(device)});
    }
    return all;
  }

 private:
  static constexpr int kSuccess = 0;

  // nvmlPciInfo_t of version 3.
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

  void* library_;
  bool open_ = false;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, void**) = nullptr;
  int (*uuid_)(void*, char*, unsigned) = nullptr;
  int (*name_)(void*, char*, unsigned) = nullptr;
  int (*pci_)(void*, PciInfo*) = nullptr;  // from driver 410 on
};

}  // namespace

std::vector<Gpu> gpus_of_this_machine() {
  return Nvml().gpus();
}

}  // namespace dslaunch::launch
