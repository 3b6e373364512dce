// What a job's terminal shows, kept in its folder: for `logs`, for `attach`, and for jobs without a terminal. One
// thread; other processes read the file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

class ConsoleLog {
 public:
  // Throws SystemError(73).
  explicit ConsoleLog(const std::string& path);

  // A full disk must not end a job: what cannot be written is left out, and trouble() says so.
  void append(std::string_view bytes);
  // One line about the first failure, once; empty otherwise.
  std::string take_trouble();

  uint64_t size() const;
  // Up to `most` bytes from `position` on; empty at the end.
  std::string read(uint64_t position, size_t most) const;
  int fd() const { return file_.get(); }

 private:
  std::string path_, trouble_;
  UniqueFd file_;
  bool trouble_told_ = false;
};

}  // namespace dslaunch::launch
