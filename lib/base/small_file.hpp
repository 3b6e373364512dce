// Small user-written files that are read whole: a hostfile, a config, a list of variables. Pipes (<(...), /dev/stdin)
// are read to their end; endless files (/dev/zero) are rejected. Any thread.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace dslaunch {

inline constexpr size_t kMaxSmallBytes = size_t{16} << 20;

struct SmallFile {
  std::string bytes;  // when the file is too large: its beginning, more than `max_bytes`
  Result<> outcome;   // success: `bytes` is the whole file
  bool too_large = false;
};

// Checks the opened file before any of it is read; may throw. Takes its status, not the path: the path may name another
// file by then.
using FileCheck = std::function<void(const struct stat& opened)>;

SmallFile read_small_file(const std::string& path, size_t max_bytes = kMaxSmallBytes, const FileCheck& check = {});

// Reads a file of our own that anyone may have replaced: anything but a plain file, such as a pipe or a device, is an
// error, and the call never waits for it.
SmallFile read_plain_file(const std::string& path, size_t max_bytes = kMaxSmallBytes, const FileCheck& check = {});

// Reads a whole file of the kernel (/proc, /sys) or of our own, of any length; empty when it cannot be read.
std::optional<std::string> read_whole_file(const std::string& path);

}  // namespace dslaunch
