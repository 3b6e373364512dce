// What the ranks of a job are.
#pragma once
#include <cstdint>

namespace dslaunch::launch {

enum class JobKind : uint8_t {
  kRun,   // dsworker: meets at the agent's store
  kExec,  // any program with torchrun's variables: its own rank 0 binds the master port
};

}  // namespace dslaunch::launch
