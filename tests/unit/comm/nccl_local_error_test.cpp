// Needs NCCL's header, and no GPU.
#include <catch2/catch.hpp>

#include "comm/nccl/local_error.hpp"

using dslaunch::ExitCode;
using dslaunch::comm::local_error;

TEST_CASE("what NCCL finds wrong on this machine is laid on no other rank", "[comm][nccl]") {
  CHECK(local_error(ncclInvalidUsage) == ExitCode::kUnavailable);
  CHECK(local_error(ncclUnhandledCudaError) == ExitCode::kUnavailable);
  CHECK(local_error(ncclInvalidArgument) == ExitCode::kInternal);
}

TEST_CASE("what the death of another rank may look like is no fault of this one", "[comm][nccl]") {
  for (const auto result : {ncclRemoteError, ncclSystemError, ncclInternalError}) CHECK_FALSE(local_error(result));
}
