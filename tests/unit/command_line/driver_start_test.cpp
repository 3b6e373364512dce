// The GPU's driver is started before main, but only where the rank will use a GPU, and for the device that it will
// take.
#include "apps/worker/driver_start.hpp"

#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <vector>

using namespace dslaunch::worker;

namespace {

bool may_use_gpu_with(std::vector<const char*> arguments) {
  return may_use_gpu(arguments);
}

int* number_in_fake(const char* name) {
  static void* fake = ::dlopen(DSL_FAKE_CUDA_DRIVER, RTLD_NOW);
  REQUIRE(fake != nullptr);
  return static_cast<int*>(::dlsym(fake, name));
}

}  // namespace

TEST_CASE("only a rank that may compute on a GPU starts the driver", "[worker][driver_start]") {
  CHECK(may_use_gpu_with({"dsworker", "train", "model.pt"}));
  CHECK(may_use_gpu_with({"dsworker", "train", "--device", "cuda", "model.pt"}));
  CHECK(may_use_gpu_with({"dsworker", "train", "--device=auto", "model.pt"}));
  CHECK_FALSE(may_use_gpu_with({}));
  CHECK_FALSE(may_use_gpu_with({"dsworker"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "--version"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "plan", "--device", "cuda"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "train", "--help"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "train", "--device", "cpu", "model.pt"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "train", "--device=cpu", "model.pt"}));
  CHECK_FALSE(may_use_gpu_with({"dsworker", "train", "--device", "tpu"}));
}

TEST_CASE("the context is the one of the device that the rank will take, or none", "[worker][driver_start]") {
  CHECK(choose_context_device(1, nullptr, false) == 0);
  CHECK(choose_context_device(1, "3", true) == 0);  // the launcher made only one visible
  CHECK(choose_context_device(4, nullptr, false) == 0);
  CHECK(choose_context_device(4, "3", true) == 3);
  CHECK(choose_context_device(0, "0", true) == std::nullopt);
  CHECK(choose_context_device(4, nullptr, true) == std::nullopt);  // numbered by a variable of mpirun
  for (const char* wrong : {"4", "-1", "", "1x", "99999999999"})
    CHECK(choose_context_device(4, wrong, true) == std::nullopt);
}

TEST_CASE("a driver is initialised, and what is missing stops at its place", "[worker][driver_start]") {
  static int num_loaded = 0;
  const auto at_loaded = [] { ++num_loaded; };
  CHECK(start_driver("/nonexistent/libcuda.so.1", "0", true, at_loaded) == DriverStart::kNoLibrary);
  CHECK(num_loaded == 0);
  CHECK(start_driver("libm.so.6", "0", true, nullptr) == DriverStart::kNoDriver);  // without the driver's functions
  int &init_result = *number_in_fake("fake_init_result"), &num_inits = *number_in_fake("fake_num_inits");
  int& context_device = *number_in_fake("fake_context_device");
  init_result = 999;  // CUDA_ERROR_UNKNOWN
  CHECK(start_driver(DSL_FAKE_CUDA_DRIVER, "2", true, at_loaded) == DriverStart::kNoDriver);
  CHECK(num_inits == 1);
  CHECK(context_device == -1);
  init_result = 0;
  CHECK(start_driver(DSL_FAKE_CUDA_DRIVER, "7", true, at_loaded) == DriverStart::kInitialized);
  CHECK(context_device == -1);
  CHECK(start_driver(DSL_FAKE_CUDA_DRIVER, "2", true, at_loaded) == DriverStart::kHasContext);
  CHECK(context_device == 2);
  CHECK(num_loaded == 3);
}
