// What the ranks of a job are.
#pragma once
#include <cstdint>

namespace dslaunch::launch {

enum class JobKind : uint8_t {
  kRun,   // dsworker: joins the agent's store
  kExec,  // any program, with torchrun's variables: the agent serves PyTorch's store to it
};

}  // namespace dslaunch::launch
