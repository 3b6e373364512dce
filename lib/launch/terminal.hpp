// Our own standard output or error, written without ever blocking the loop: what the reader does not take yet is kept.
// A reader that is gone (a closed pipe) is no reason to stop a job. One thread.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

class Terminal {
 public:
  explicit Terminal(int fd) : fd_(fd) {}

  void write(std::string_view bytes);
  // As much as the reader takes now.
  void flush();
  void drop();
  size_t num_pending() const { return pending_.size() - begin_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string pending_;
  size_t begin_ = 0;
};

}  // namespace dslaunch::launch
