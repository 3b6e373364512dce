#include "driver_start.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace dslaunch::worker {
namespace {

// The threads begin before any initializer has run: all this is constant then. Each is used by the main thread and by
// the thread that it names, one after the other.
struct Background {
  pthread_t thread = {};
  bool is_running = false;
};
constinit Background g_driver, g_libraries;
constinit double g_seconds = 0;

constexpr const char* kRankVariables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};

bool names_a_rank() {
  for (const char* name : kRankVariables) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// All signals are for the main thread; the driver's own threads inherit that.
bool begin(Background& background, void* (*run)(void*)) {
  sigset_t all, before;
  ::sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  background.is_running = ::pthread_create(&background.thread, nullptr, run, nullptr) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return background.is_running;
}

void end(Background& background) {
  if (!background.is_running) return;
  ::pthread_join(background.thread, nullptr);
  background.is_running = false;
}

// libcublasLt of the CUDA that LibTorch uses takes longer to load than the rest of LibTorch's CUDA half, and depends on
// nothing of it. A wheel has it beside its libcudart; elsewhere nothing happens.
void* load_libraries(void*) {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        constexpr std::string_view kRuntime = "/libcudart.so", kWanted = "/libcublasLt.so";
        std::string name = info->dlpi_name != nullptr ? info->dlpi_name : "";
        const size_t at = name.rfind(kRuntime);
        if (at == std::string::npos) return 0;
        *static_cast<std::string*>(found) = name.replace(at, kRuntime.size(), kWanted);
        return 1;
      },
      &path);
  if (!path.empty()) ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return nullptr;
}

void* start(void*) {
  const auto began = std::chrono::steady_clock::now();
  // libc's own initializer, the first to run after this thread was made, sets it.
  while (::environ == nullptr) ::usleep(50);
  start_driver("libcuda.so.1", std::getenv("LOCAL_RANK"), names_a_rank(), [] { begin(g_libraries, load_libraries); });
  g_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return nullptr;
}

}  // namespace

bool may_use_gpu(std::span<const char* const> arguments) {
  if (arguments.size() < 2 || std::strcmp(arguments[1], "train") != 0) return false;
  std::string_view device = "auto";
  for (size_t i = 2; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") return false;
    if (argument == "--device" && i + 1 < arguments.size()) device = arguments[i + 1];
    if (argument.starts_with("--device=")) device = argument.substr(argument.find('=') + 1);
  }
  return device == "auto" || device == "cuda";
}

std::optional<int> choose_context_device(int num_devices, const char* local_rank, bool has_rank) {
  if (num_devices < 1) return std::nullopt;
  if (num_devices == 1 || (local_rank == nullptr && !has_rank)) return 0;
  int device = 0;
  if (local_rank == nullptr) return std::nullopt;
  const char* last = local_rank + std::strlen(local_rank);
  const auto [end, error] = std::from_chars(local_rank, last, device);
  if (error != std::errc() || end != last || device < 0 || device >= num_devices) return std::nullopt;
  return device;
}

DriverStart start_driver(const char* library, const char* local_rank, bool has_rank, void (*at_loaded)()) {
  void* driver = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return DriverStart::kNoLibrary;
  if (at_loaded != nullptr) at_loaded();
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto retain = reinterpret_cast<int (*)(void**, int)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
  if (init == nullptr || count == nullptr || get == nullptr || retain == nullptr) return DriverStart::kNoDriver;
  int num_devices = 0, handle = 0;
  if (init(0) != 0 || count(&num_devices) != 0) return DriverStart::kNoDriver;
  const auto device = choose_context_device(num_devices, local_rank, has_rank);
  void* context = nullptr;
  const bool has_context = device && get(&handle, *device) == 0 && retain(&context, handle) == 0;
  return has_context ? DriverStart::kHasContext : DriverStart::kInitialized;
}

void begin_driver_start(int argc, const char* const* argv) {
  struct stat status {};
  const std::span arguments(argv, static_cast<size_t>(argc));
  if (!may_use_gpu(arguments) || ::stat("/dev/nvidiactl", &status) != 0) return;
  begin(g_driver, start);
}

void wait_for_driver() {
  end(g_driver);
  end(g_libraries);
}

std::optional<double> driver_seconds() {
  return g_seconds > 0 ? std::optional(g_seconds) : std::nullopt;
}

}  // namespace dslaunch::worker
