// Decides whether an NCCL error was caused by this rank, as far as the result code shows. Pure.
#pragma once
#include <nccl.h>

#include <optional>

#include "base/exit_code.hpp"

namespace dslaunch::comm {

// The exit code for an error caused by this rank or its machine. nullopt for errors that the death of another rank may
// also cause: a broken connection, or an error inside NCCL.
inline std::optional<ExitCode> local_error(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
    case ncclInvalidUsage:  // of the machine: two ranks on one GPU, as in "Duplicate GPU detected"
      return ExitCode::kUnavailable;
    case ncclInvalidArgument:
      return ExitCode::kInternal;
    default:
      return std::nullopt;
  }
}

}  // namespace dslaunch::comm
