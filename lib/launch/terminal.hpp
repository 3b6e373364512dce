// Our own standard output or error, written without ever blocking the loop: what the reader does not take yet is kept,
// and a file, which takes everything but may stand still meanwhile, is left to the thread of files. A reader that is
// gone (a closed pipe) is no reason to stop a job; neither is a full disk, but what was written there is lost, and
// has_lost() says so. One thread.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "launch/file_thread.hpp"

namespace dslaunch::launch {

// Two descriptors of one terminal, file or pipe (2>&1): written through two Terminals, lines would be torn and change
// their order where the reader is slow.
bool have_one_reader(int a, int b);

class Terminal {
 public:
  // For a reader that takes nothing, where it is not to hold up an end; and an end that somebody asked for.
  static constexpr std::chrono::milliseconds kTimeout{5000}, kAskedTimeout{1000};

  // Without a thread (it outlives this) a file is written at once.
  explicit Terminal(int fd, FileThread* thread = nullptr);

  void write(std::string_view bytes);
  // As much as the reader takes now.
  void flush();
  // The patience after the reader last took something, or after renew_patience(); never while nothing waits for it.
  Deadline patience() const { return num_pending() > 0 ? patience_ : Deadline::never(); }
  void renew_patience() { patience_ = num_pending() > 0 ? Deadline::after(patience_time_) : Deadline::never(); }
  void set_patience(std::chrono::milliseconds time) {
    patience_time_ = time;
    renew_patience();
  }
  // Drops what waits; a line that was begun is ended. The next that is written has a patience of its own.
  void give_up();
  // So it is until the reader has taken what was written since, and would take more.
  bool is_given_up() const { return is_given_up_; }
  // Without what the thread has.
  size_t num_pending() const { return pending_.size() - begin_; }
  int fd() const { return fd_; }
  // Not a file or a pipe.
  bool is_terminal() const { return is_terminal_; }
  // What was to be written did not arrive, and nobody has gone away who did not want it. Of a file: not so far.
  bool has_lost() const { return has_lost_ || (file_ && (file_->has_lost || file_->num_unwritten > 0)); }

 private:
  // Writes on the thread.
  struct File {
    int fd;
    std::atomic<size_t> num_unwritten = 0;
    std::atomic<bool> has_lost = false;

    void write(std::string_view bytes);
  };

  FileThread* thread_;
  std::shared_ptr<File> file_;  // null: it is none
  bool is_terminal_;
  UniqueFd own_;  // invalid: it is no terminal, or one that is not to be opened again
  int fd_;
  std::string pending_;
  size_t begin_ = 0;
  std::chrono::milliseconds patience_time_ = kTimeout;
  Deadline patience_ = Deadline::never();
  bool is_given_up_ = false, in_line_ = false;  // the last byte that went out ended no line
  bool has_lost_ = false;
};

}  // namespace dslaunch::launch
