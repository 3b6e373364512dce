#include "base/standard_streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <initializer_list>

#include "base/exit_code.hpp"

namespace dslaunch {

void open_standard_streams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // open returns the lowest free number, which is this stream. On failure the stream stays closed.
    [[maybe_unused]] int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

OutputState standard_output_state() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return OutputState::kWritten;
  return standard_output_is_closed() ? OutputState::kReaderClosed : OutputState::kFailed;
}

bool standard_output_is_closed() {
  pollfd reader{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0;
}

void exit_as_sigpipe() {
  std::signal(SIGPIPE, SIG_DFL);
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
  std::raise(SIGPIPE);
  ::_exit(to_int(ExitCode::kSignalBase) + SIGPIPE);
}

}  // namespace dslaunch
