#include "launch/terminal.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace dslaunch::launch {

void Terminal::write(std::string_view bytes) {
  if (fd_ < 0) return;
  pending_ += bytes;
  flush();
}

// A closed pipe, or a terminal that was hung up.
static bool reader_is_gone(int fd, int error) {
  struct stat status {};
  const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  return !is_file && (error == EPIPE || error == EIO || error == ECONNRESET);
}

void Terminal::drop() {
  pending_.clear();
  begin_ = 0;
}

void Terminal::flush() {
  while (fd_ >= 0 && num_pending() > 0) {
    // The descriptor is shared with the shell, so it stays in its mode; a pipe that polls writable takes PIPE_BUF bytes
    // without blocking.
    pollfd poll{fd_, POLLOUT, 0};
    if (::poll(&poll, 1, 0) <= 0) break;
    ssize_t wrote = ::write(fd_, pending_.data() + begin_, std::min<size_t>(num_pending(), PIPE_BUF));
    if (wrote >= 0) {
      begin_ += wrote;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      has_lost_ = !reader_is_gone(fd_, errno);
      fd_ = -1;
      drop();
    }
  }
  if (begin_ > pending_.size() / 2) {
    pending_.erase(0, begin_);
    begin_ = 0;
  }
}

}  // namespace dslaunch::launch
