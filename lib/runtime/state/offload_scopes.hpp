// The work of offloaded state as profilers see it: a user scope of at::RecordFunction, with the number of bytes as its
// argument. Without a profiler a scope costs some nanoseconds.
#pragma once
#include <ATen/record_function.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace dslaunch::runtime {

// On the host, in the update thread.
inline constexpr const char* kHostUpdateScope = "host update";
// Copies, on the current stream.
inline constexpr const char* kDownloadScope = "gradients to host";
inline constexpr const char* kUploadScope = "parameters to device";

inline bool is_offload_scope(std::string_view name) {
  return name == kHostUpdateScope || name == kDownloadScope || name == kUploadScope;
}

class OffloadScope {
 public:
  // `name`: one of the above.
  OffloadScope(const char* name, size_t bytes) : bytes_{static_cast<int64_t>(bytes)} {
    if (scope_.isActive()) scope_.before(name, c10::ArrayRef<const c10::IValue>(bytes_.data(), bytes_.size()));
  }
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

 private:
  const std::array<c10::IValue, 1> bytes_;
  at::RecordFunction scope_{at::RecordScope::USER_SCOPE};
};

}  // namespace dslaunch::runtime
