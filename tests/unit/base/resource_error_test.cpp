#include "base/resource_error.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "base/error.hpp"

using namespace dslaunch;

namespace {

struct Answer {
  ExitCode code;
  std::string text;
};

std::optional<Answer> answer_to(const std::string& cause) {
  try {
    throw_if_resource_failed(cause, "forward on Long[4, 16]");
  } catch (const Error& error) {
    return Answer{error.code(), error.what()};
  }
  return std::nullopt;
}

void check_answer(const std::string& cause, ExitCode code, const std::string& words) {
  CAPTURE(cause);
  const auto answer = answer_to(cause);
  REQUIRE(answer);
  CHECK(answer->code == code);
  CHECK_THAT(answer->text, Catch::Contains(words) && Catch::Contains(cause) && Catch::Contains("Long[4, 16]"));
}

}  // namespace

TEST_CASE("a GPU that fails is no bad input: another start may do better", "[base][resource_error]") {
  // The texts of cudaGetErrorString, as LibTorch passes them on.
  for (const char* cause :
       {"CUDA error: uncorrectable ECC error encountered", "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure", "CUDA error: misaligned address", "CUDA error: unknown error",
        "CUDA error: uncorrectable NVLink error detected during the execution", "CUDA error: hardware stack error",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "CUDA error: the launch timed out and was terminated",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable"}) {
    check_answer(cause, ExitCode::kUnavailable, "the GPU failed");
  }
}

TEST_CASE("memory that is refused is told as such, whoever refused it", "[base][resource_error]") {
  for (const char* cause : {"CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA error: out of memory",
                            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"}) {
    check_answer(cause, ExitCode::kUnavailable, "out of memory in");
  }
  const auto on_host = answer_to(
      "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 "
      "bytes. Error code 12 (Cannot allocate memory)");
  REQUIRE(on_host);
  CHECK(on_host->code == ExitCode::kUnavailable);
  CHECK_THAT(on_host->text, Catch::StartsWith("out of memory in forward on Long[4, 16]: DefaultCPUAllocator: can't "
                                              "allocate memory: you tried to allocate 4096 bytes. Error code 12"));
}

TEST_CASE("an index out of range in a kernel is the input's", "[base][resource_error]") {
  check_answer("CUDA error: device-side assert triggered", ExitCode::kBadInput, "CUDA_LAUNCH_BLOCKING=1");
  check_answer("CUDA error: no kernel image is available for execution on the device", ExitCode::kUnavailable,
               "not built for this GPU");
}

TEST_CASE("what a model itself does wrong is not the machine's", "[base][resource_error]") {
  for (const char* cause : {"mat1 and mat2 shapes cannot be multiplied (4x6 and 5x3)", "ValueError: too long",
                            "CUDA error: invalid configuration argument",
                            "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`"}) {
    CAPTURE(cause);
    CHECK_FALSE(answer_to(cause));
  }
}
