// A new file written front to back. One thread. Nothing is buffered here: callers should pass large blocks.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::runtime {

class OutputFile {
 public:
  // Creates or truncates. `mode`: of a new file, less the umask. Throws SystemError(73), or 74 when the disk or the
  // quota is full.
  explicit OutputFile(const std::string& path, mode_t mode = 0666);
  // The length that the file will have, for the message of a full disk; without it that of one write.
  void expect(uint64_t total_bytes) { expected_bytes_ = total_bytes; }
  // Throws SystemError(74) naming the path: disk full, quota, I/O error.
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes to the device if requested, and closes; errors that the kernel deferred are reported here. Throws
  // SystemError(74).
  void finish(bool sync);

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t expected_bytes_ = 0, written_bytes_ = 0;
};

// Flushes a directory's entries (created and renamed names) to the device. Throws SystemError(74).
void sync_directory(const std::string& path);

}  // namespace dslaunch::runtime
