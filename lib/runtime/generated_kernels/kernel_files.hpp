// Compiled kernels on disk, one file each, shared by all processes of a user. A file holds its source, so that no other
// kernel is ever taken for it, and a checksum. It appears whole or not at all. Any thread, any process.
#pragma once
#include <optional>
#include <string>

#include "base/result.hpp"

namespace dslaunch::runtime::generated_kernels {

// ${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/kernels; empty where neither variable is set.
std::string kernel_directory();

class KernelFiles {
 public:
  explicit KernelFiles(std::string directory) : directory_(std::move(directory)) {}

  // `key`: all that the machine code depends on: source, architecture, version of the compiler. Nothing: it is not
  // there, cannot be read or is damaged.
  std::optional<std::string> read(const std::string& key) const;
  // Replaces a damaged file. The failure is a clause about the directory.
  Result<> write(const std::string& key, const std::string& cubin) const;

  std::string path_of(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace dslaunch::runtime::generated_kernels
