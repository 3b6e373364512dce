// What this process writes to standard output during an object's lifetime. One at a time.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "support/temp_dir.hpp"

namespace dslaunch::test {

class CapturedStdout {
 public:
  CapturedStdout() : before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int file = ::open((folder_ / "out").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0) throw std::runtime_error("cannot redirect standard output");
    ::close(file);
  }
  ~CapturedStdout() {
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }
  CapturedStdout(const CapturedStdout&) = delete;
  CapturedStdout& operator=(const CapturedStdout&) = delete;

  std::string text() const {
    std::fflush(stdout);
    return read_file(folder_ / "out");
  }

 private:
  TempDir folder_;
  const int before_;
};

}  // namespace dslaunch::test
