// Needs CUDA's header, and no GPU.
#include "comm/nccl/no_device.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::Contains;
using dslaunch::comm::why_no_device;

TEST_CASE("a driver that is older than LibTorch's CUDA is named with both releases", "[comm][nccl]") {
  CHECK_THAT(why_no_device({cudaErrorInsufficientDriver, 12040, 13000}),
             Contains("CUDA up to 12.4") && Contains("needs CUDA 13.0") && Contains("580"));
  CHECK_THAT(why_no_device({cudaErrorInsufficientDriver, 0, 13000}), Contains("libcuda.so.1"));
}

TEST_CASE("what keeps a host's GPUs from beginning comes with what to do", "[comm][nccl]") {
  CHECK_THAT(why_no_device({cudaErrorSystemNotReady, 13000, 13000}), Contains("nvidia-fabricmanager"));
  CHECK_THAT(why_no_device({cudaErrorSystemDriverMismatch, 13000, 13000}), Contains("reboot"));
  CHECK_THAT(why_no_device({cudaErrorCompatNotSupportedOnDevice, 13000, 13000}), Contains("LD_LIBRARY_PATH"));
}

TEST_CASE("without an error no device is visible", "[comm][nccl]") {
  for (const auto result : {cudaSuccess, cudaErrorNoDevice}) {
    CHECK_THAT(why_no_device({result, 13000, 13000}), Contains("CUDA_VISIBLE_DEVICES"));
  }
}
