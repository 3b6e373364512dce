// Starts the GPU's driver on threads of their own while LibTorch initialises itself, which takes a fifth of a second
// before main: driver and context take longer than that, and nothing before the first tensor on the device needs them.
// What fails here fails again, and is reported, where the device is opened.
//
// Until wait_for_driver() the driver reads the environment, so that nobody may change it.
#pragma once
#include <optional>
#include <span>

namespace dslaunch::worker {

// Whether a program with these arguments may open a GPU, as far as they tell.
bool may_use_gpu(std::span<const char* const> arguments);

// The device that open_device() will take. `local_rank`: LOCAL_RANK, may be null. `has_rank`: the environment names a
// rank in whatever way. Empty: not known.
std::optional<int> choose_context_device(int num_devices, const char* local_rank, bool has_rank);

// What start_driver() got to.
enum class DriverStart { kNoLibrary, kNoDriver, kInitialized, kHasContext };
// Initialises the driver that `library` is ("libcuda.so.1") and makes the device's primary context, which stays until
// the process ends. `at_loaded`: called once the library is loaded; may be null.
DriverStart start_driver(const char* library, const char* local_rank, bool has_rank, void (*at_loaded)());

// Before the initializers of any library, on the main thread; once. Without effect where the machine has no driver.
void begin_driver_start(int argc, const char* const* argv);
// Waits for what begin_driver_start() began, if it has. On the main thread.
void wait_for_driver();
// The seconds that the driver and its context took, once they have been waited for; empty where nothing was begun.
std::optional<double> driver_seconds();

}  // namespace dslaunch::worker
