#include "base/resource_error.hpp"

#include <algorithm>
#include <initializer_list>

#include "base/format.hpp"

namespace dslaunch {
namespace {

bool contains_any(const std::string& text, std::initializer_list<const char*> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](const char* some) { return text.find(some) != std::string::npos; });
}

bool is_out_of_memory(const std::string& text) {
  return contains_any(text,
                      {"CUDA out of memory", "CUDA error: out of memory", "_ALLOC_FAILED", "can't allocate memory"});
}

// After one of these errors the device no longer works in this process; another process may succeed.
bool is_device_lost(const std::string& text) {
  return contains_any(
      text, {"CUDA error: uncorrectable", "illegal memory access", "unspecified launch failure", "illegal instruction",
             "misaligned address", "hardware stack error", "invalid program counter", "global/shared address space",
             "launch timed out", "CUDA error: unknown error", "device(s) is/are busy", "STATUS_EXECUTION_FAILED",
             "STATUS_INTERNAL_ERROR"});
}

// Without the place in PyTorch's source: "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't ..."
std::string without_source_place(const std::string& cause) {
  const auto place = cause.find("[enforce fail at ");
  const auto end = place == std::string::npos ? place : cause.find(']', place);
  if (end == std::string::npos) return cause;
  const auto text = cause.find_first_not_of("]. ", end);
  return cause.substr(0, place) + (text == std::string::npos ? "" : cause.substr(text));
}

}  // namespace

OutOfMemoryError::OutOfMemoryError(const std::string& failure, const std::string& advice)
    : UserError(ExitCode::kUnavailable, fmt::format("{}. {}", failure, advice)), failure_(failure) {}

void throw_if_resource_failed(const std::string& cause, const std::string& during) {
  if (is_out_of_memory(cause)) {
    throw OutOfMemoryError(fmt::format("out of memory in {}: {}", during, without_source_place(cause)),
                           "Use a smaller micro batch, \"activation_checkpointing\" or a higher ZeRO stage");
  }
  if (contains_any(cause, {"device-side assert"})) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("a GPU kernel got an index that is out of range, in {} or shortly before: {}. Set "
                                "CUDA_LAUNCH_BLOCKING=1 in the environment to see the operator",
                                during, cause));
  }
  if (contains_any(cause, {"no kernel image is available"})) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("LibTorch or dslaunch was not built for this GPU: {} (in {})", cause, during));
  }
  if (is_device_lost(cause)) {
    throw Error(ExitCode::kUnavailable, fmt::format("the GPU failed in {}: {}. Check the kernel's log (dmesg, lines "
                                                    "with \"Xid\") and nvidia-smi -q for a hardware error",
                                                    during, cause));
  }
}

}  // namespace dslaunch
