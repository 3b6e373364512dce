#include "launch/terminal/terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/format.hpp"
#include "base/write_all.hpp"

namespace dslaunch::launch {

namespace {

bool is_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

bool is_same_terminal(int a, int b) {
  unsigned device_a = 0, device_b = 0;
  return ::ioctl(a, TIOCGDEV, &device_a) == 0 && ::ioctl(b, TIOCGDEV, &device_b) == 0 && device_a == device_b;
}

// A terminal that polls writable accepts what it has room for, then blocks until its reader reads, and a shell's ssh
// may have stalled. O_NONBLOCK needs an open file description of our own: the original is shared with the shell.
UniqueFd open_again_without_blocking(int fd) {
  if (fd < 0 || ::isatty(fd) == 0) return {};
  constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), kFlags));
  if (own.valid() && is_same_terminal(own.get(), fd)) return own;  // opening the master side opens another terminal
  own = UniqueFd(::open("/dev/tty", kFlags));  // after `su` the device still belongs to the other user
  return own.valid() && is_same_terminal(own.get(), fd) ? std::move(own) : UniqueFd();
}

bool takes_some(int fd) {
  pollfd poll{fd, POLLOUT, 0};
  return fd >= 0 && ::poll(&poll, 1, 0) > 0;
}

// A closed pipe, or a terminal that has hung up.
bool reader_is_gone(int fd, int error) {
  return !is_file(fd) && (error == EPIPE || error == EIO || error == ECONNRESET);
}

}  // namespace

bool have_one_reader(int a, int b) {
  struct stat of_a, of_b;
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

Terminal::Terminal(int fd, FileThread* thread)
    : thread_(thread),
      is_terminal_(fd >= 0 && ::isatty(fd) == 1),
      own_(open_again_without_blocking(fd)),
      fd_(own_.valid() ? own_.get() : fd) {
  if (thread == nullptr || !is_file(fd)) return;
  file_ = std::make_shared<File>();
  file_->fd = fd;
}

void Terminal::write(std::string_view bytes) {
  if (file_) {
    file_->num_unwritten += bytes.size();
    return thread_->submit(bytes.size(), [file = file_, bytes = std::string(bytes)] {
      file->write(bytes);
      return std::string();
    });
  }
  if (fd_ < 0) return;
  pending_ += bytes;
  flush();
}

void Terminal::File::write(std::string_view bytes) {
  if (!has_lost) has_lost = write_all(fd, bytes) != 0;
  num_unwritten -= bytes.size();
}

void Terminal::give_up() {
  pending_ = in_line_ && !is_given_up_ ? "\n" : "";
  begin_ = 0;
  is_given_up_ = true;
  restart_timeout();
}

void Terminal::flush() {
  while (fd_ >= 0 && num_pending() > 0) {
    // A pipe is shared with other processes, so its mode is not changed; one that polls writable takes PIPE_BUF bytes
    // without blocking.
    if (!takes_some(fd_)) break;
    ssize_t wrote = ::write(fd_, pending_.data() + begin_, std::min<size_t>(num_pending(), PIPE_BUF));
    if (wrote >= 0) {
      begin_ += wrote;
      reader_deadline_ = Deadline::never();
      if (wrote > 0) in_line_ = pending_[begin_ - 1] != '\n';
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      has_lost_ = !reader_is_gone(fd_, errno);
      fd_ = -1;
      pending_.clear();
      begin_ = 0;
    }
  }
  if (num_pending() == 0) {
    is_given_up_ = is_given_up_ && !takes_some(fd_);
  } else if (reader_deadline_.is_never()) {
    restart_timeout();
  }
  if (begin_ > pending_.size() / 2) {
    pending_.erase(0, begin_);
    begin_ = 0;
  }
}

}  // namespace dslaunch::launch
