// dslaunch's own standard output or error, written without ever blocking the loop: bytes that the reader does not
// accept yet are kept, and a file, which accepts everything but may stall, is left to the file thread. Neither a reader
// that is gone (a closed pipe) nor a full disk stops a job, but has_lost() reports output lost to a full disk. One
// thread.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "launch/event_loop/file_thread.hpp"

namespace dslaunch::launch {

// Whether two descriptors are one terminal, file or pipe (2>&1): written through two Terminals, lines would be split
// and reordered if the reader is slow.
bool have_one_reader(int a, int b);

class Terminal {
 public:
  // For a reader that accepts nothing: where it must not delay the end, and where that end was requested.
  static constexpr std::chrono::milliseconds kTimeout{5000}, kStopRequestedTimeout{1000};

  // Without a thread (which outlives this) a file is written at once.
  explicit Terminal(int fd, FileThread* thread = nullptr);

  void write(std::string_view bytes);
  // Writes as much as the reader accepts now.
  void flush();
  // The timeout since the reader last accepted something, or since restart_timeout(); never if nothing is pending.
  Deadline reader_deadline() const { return num_pending() > 0 ? reader_deadline_ : Deadline::never(); }
  void restart_timeout() { reader_deadline_ = num_pending() > 0 ? Deadline::after(timeout_) : Deadline::never(); }
  void set_timeout(std::chrono::milliseconds time) {
    timeout_ = time;
    restart_timeout();
  }
  // Drops pending bytes; an incomplete line is ended. The next write has its own timeout.
  void give_up();
  // True until the reader has accepted everything written since give_up(), and would accept more.
  bool is_given_up() const { return is_given_up_; }
  // Without the bytes queued on the thread.
  size_t num_pending() const { return pending_.size() - begin_; }
  int fd() const { return fd_; }
  // Not a file or a pipe.
  bool is_terminal() const { return is_terminal_; }
  // Some output did not arrive, and not because its reader went away. For a file: has not arrived so far.
  bool has_lost() const { return has_lost_ || (file_ && (file_->has_lost || file_->num_unwritten > 0)); }

 private:
  // write() runs on the thread.
  struct File {
    int fd;
    std::atomic<size_t> num_unwritten = 0;
    std::atomic<bool> has_lost = false;

    void write(std::string_view bytes);
  };

  FileThread* thread_;
  std::shared_ptr<File> file_;  // null: not a file
  bool is_terminal_;
  UniqueFd own_;  // invalid: not a terminal, or one that cannot be opened again
  int fd_;
  std::string pending_;
  size_t begin_ = 0;
  std::chrono::milliseconds timeout_ = kTimeout;
  Deadline reader_deadline_ = Deadline::never();
  bool is_given_up_ = false, in_line_ = false;  // in_line_: the last byte written did not end a line
  bool has_lost_ = false;
};

}  // namespace dslaunch::launch
