// Whose fault an answer of NCCL's is, as far as it tells. Pure.
#pragma once
#include <nccl.h>

#include <optional>

#include "base/exit_code.hpp"

namespace dslaunch::comm {

// Under which code this rank ends by its own fault or its machine's. Nothing for what the death of another rank may
// look like: a connection that broke, or an error inside of NCCL.
inline std::optional<ExitCode> local_error(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
    case ncclInvalidUsage:  // of the machine: two ranks on one GPU, as for "Duplicate GPU detected"
      return ExitCode::kUnavailable;
    case ncclInvalidArgument:
      return ExitCode::kInternal;
    default:
      return std::nullopt;
  }
}

}  // namespace dslaunch::comm
