// Files of the user's hand that are read whole: a hostfile, a config, a list of variables. Pipes (<(...), /dev/stdin)
// are read to their end; what has none (/dev/zero) is given up. Any thread.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace dslaunch {

inline constexpr size_t kMaxSmallBytes = size_t{16} << 20;

struct SmallFile {
  std::string bytes;    // when it is too large: its beginning, more than `most_bytes`
  std::string trouble;  // empty: `bytes` is all of it; else what came instead, as the end of a sentence
  bool too_large = false;
};

// Sees what was opened, before any of it is read; may throw. By the descriptor: the path may be another file by then.
using FileCheck = std::function<void(const struct stat& opened)>;

SmallFile read_small_file(const std::string& path, size_t most_bytes = kMaxSmallBytes, const FileCheck& check = {});

// A file of our own that anybody may have put something else in the place of: what is no plain file, a pipe or a
// device, is trouble, and never waited for.
SmallFile read_plain_file(const std::string& path, size_t most_bytes = kMaxSmallBytes, const FileCheck& check = {});

// For files of the kernel (/proc, /sys) and of our own, however long: all of it; empty when it cannot be read.
std::optional<std::string> read_whole_file(const std::string& path);

}  // namespace dslaunch
