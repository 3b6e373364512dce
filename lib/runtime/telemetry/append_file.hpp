// A file that grows line by line or record by record: every write() is complete or an error. One thread.
#pragma once
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::runtime {

class AppendFile {
 public:
  // Creates the file if it does not exist. Throws SystemError(73).
  explicit AppendFile(const std::string& path);
  // Throws SystemError(74).
  void write(std::string_view bytes);
  // Truncates the file to `bytes`; no effect on devices and pipes. Throws SystemError(74).
  void truncate(int64_t bytes);
  int64_t size() const;
  // Whether the file or a directory above it was removed: later writes would never be read.
  bool is_removed() const;

 private:
  std::string path_;
  UniqueFd fd_;
};

// Throws SystemError(73).
void make_directory(const std::string& path);

}  // namespace dslaunch::runtime
