// Needs NCCL's header, and no GPU.
#include <catch2/catch.hpp>

#include "comm/nccl/local_error.hpp"

using dslaunch::ExitCode;
using dslaunch::comm::own_fault;

TEST_CASE("what NCCL finds wrong on this machine is laid on no other rank", "[comm][nccl]") {
  CHECK(own_fault(ncclInvalidUsage) == ExitCode::kUnavailable);
  CHECK(own_fault(ncclUnhandledCudaError) == ExitCode::kUnavailable);
  CHECK(own_fault(ncclInvalidArgument) == ExitCode::kInternal);
}

TEST_CASE("what the death of another rank may look like is no fault of this one", "[comm][nccl]") {
  for (const auto result : {ncclRemoteError, ncclSystemError, ncclInternalError}) CHECK_FALSE(own_fault(result));
}
