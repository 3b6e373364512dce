// Our own standard output or error, written without ever blocking the loop: what the reader does not take yet is kept.
// A reader that is gone (a closed pipe) is no reason to stop a job; neither is a full disk, but what was written there
// is lost, and has_lost() says so. One thread.
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
  // What was to be written did not arrive, and nobody has gone away who did not want it.
  bool has_lost() const { return has_lost_; }

 private:
  int fd_;
  std::string pending_;
  size_t begin_ = 0;
  bool has_lost_ = false;
};

}  // namespace dslaunch::launch
