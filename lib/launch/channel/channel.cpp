#include "launch/channel/channel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace dslaunch::launch {

template <class Sent, class Received>
Channel<Sent, Received>::Channel(UniqueFd input, UniqueFd output)
    : input_(std::move(input)), output_(std::move(output)) {
  for (int fd : {input_.get(), output_.get()}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

template <class Sent, class Received>
void Channel<Sent, Received>::send(const Sent& message) {
  if (!output_.valid()) return;
  unsent_ += encode(message);
  flush();
}

template <class Sent, class Received>
bool Channel<Sent, Received>::flush() {
  while (output_.valid() && sent_ < unsent_.size()) {
    ssize_t wrote = ::write(output_.get(), unsent_.data() + sent_, unsent_.size() - sent_);
    if (wrote >= 0) {
      sent_ += wrote;
    } else if (errno == EAGAIN) {
      if (sent_ > unsent_.size() / 2) unsent_.erase(0, std::exchange(sent_, 0));
      return true;
    } else if (errno != EINTR) {
      output_.reset();
    }
  }
  unsent_.clear();
  sent_ = 0;
  return output_.valid();
}

template <class Sent, class Received>
bool Channel<Sent, Received>::receive() {
  constexpr size_t kMaxBytes = 65536;
  const auto buffer = std::make_unique_for_overwrite<char[]>(kMaxBytes);  // a limit on the stack may be lower
  // Bounded, so that a peer that sends much cannot keep this end's owner from its other work.
  for (int round = 0; round < 16; ++round) {
    ssize_t got = ::read(input_.get(), buffer.get(), kMaxBytes);
    if (got > 0) {
      std::string_view bytes(buffer.get(), static_cast<size_t>(got));
      if (greeting_) {
        frames_.append(greeting_->pass(bytes));
      } else {
        frames_.append(bytes);
      }
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

template class Channel<MessageToAgent, MessageToLauncher>;
template class Channel<MessageToLauncher, MessageToAgent>;

}  // namespace dslaunch::launch
