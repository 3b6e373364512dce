#include "launch/agent/rank_process.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>

namespace dslaunch::launch {

void RankProcess::stop(int signal) {
  if (!running_) return;
  stop_sent_ = true;
  spawn::signal_group(process_, signal);
  if (signal != SIGKILL) spawn::signal_group(process_, SIGCONT);
}

void RankProcess::signal(int signal) {
  if (running_) spawn::signal_group(process_, signal);
}

void RankProcess::read_output(const Sink& sink, size_t most_bytes) {
  read_stream(process_.out, Stream::kOut, sink, most_bytes);
  read_stream(process_.err, Stream::kErr, sink, most_bytes);
}

void RankProcess::read_stream(UniqueFd& fd, Stream stream, const Sink& sink, size_t most_bytes) {
  constexpr size_t kMaxAtOnce = 65536;
  const auto buffer = std::make_unique_for_overwrite<char[]>(kMaxAtOnce);  // a limit on the stack may be lower
  for (size_t taken = 0; fd.valid() && taken < most_bytes;) {
    ssize_t got = ::read(fd.get(), buffer.get(), kMaxAtOnce);
    if (got > 0) {
      taken += got;
      sink(RankOutput{rank_, stream, std::string(buffer.get(), got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      fd.reset();
    }
  }
}

}  // namespace dslaunch::launch
