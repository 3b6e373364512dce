#include "ports/connect_first.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace dslaunch::ports {
namespace {

using namespace std::chrono_literals;

// How long an address is tried alone before the next one is tried in parallel; the number is RFC 8305's.
constexpr auto kHeadStart = 250ms;

struct Attempt {
  const addrinfo* address;
  UniqueFd fd;
};

class Race {
 public:
  explicit Race(const addrinfo* addresses) : next_(addresses) {}

  FirstConnection run(Deadline deadline, const PollUntil& wait) {
    do {
      if (next_ != nullptr && (attempts_.empty() || head_start_.passed())) {
        begin_next();
      } else {
        await(deadline, wait);
      }
    } while (!result_.fd.valid() && (next_ != nullptr || !attempts_.empty()) && !deadline.passed());
    if (result_.fd.valid()) return std::move(result_);
    for (const auto& silent : attempts_) result_.failures.push_back({silent.address, ETIMEDOUT});
    return std::move(result_);
  }

 private:
  void begin_next() {
    const addrinfo* address = std::exchange(next_, next_->ai_next);
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    head_start_ = Deadline::after(kHeadStart);
    if (fd.valid() && ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0) {
      result_.fd = std::move(fd);
    } else if (fd.valid() && errno == EINPROGRESS) {
      attempts_.push_back({address, std::move(fd)});
    } else {
      result_.failures.push_back({address, errno});
    }
  }

  void await(Deadline deadline, const PollUntil& wait) {
    std::vector<pollfd> polls;
    for (const auto& attempt : attempts_) polls.push_back({attempt.fd.get(), POLLOUT, 0});
    wait(polls, next_ != nullptr ? std::min(head_start_, deadline) : deadline);
    std::vector<Attempt> silent;
    for (size_t i = 0; i < attempts_.size(); ++i) {
      if (polls[i].revents == 0 || result_.fd.valid()) {
        silent.push_back(std::move(attempts_[i]));
      } else {
        check(std::move(attempts_[i]));
      }
    }
    attempts_ = std::move(silent);
  }

  void check(Attempt attempt) {
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0) {
      result_.fd = std::move(attempt.fd);
    } else {
      result_.failures.push_back({attempt.address, error});
    }
  }

  const addrinfo* next_;
  std::vector<Attempt> attempts_;  // in progress
  Deadline head_start_ = Deadline::never();
  FirstConnection result_;
};

}  // namespace

FirstConnection connect_first(const addrinfo* addresses, Deadline deadline, const PollUntil& wait) {
  return Race(addresses).run(deadline, wait);
}

}  // namespace dslaunch::ports
