// libgloo's event thread tries the lock of a connection that has something to read, and where another thread holds it
// (one that sends) asks epoll again, which answers at once, and again. With fewer free cores than threads this keeps
// the holder itself from running: two ranks on two cores spent 3 of 5 seconds so (200 steps of a small GPT).
//
// This epoll_wait stands before libc's where libgloo and what it brings along look for it, and only there: the module
// is opened with RTLD_LOCAL | RTLD_DEEPBIND. It does the same, but gives up the core when it is asked for an answer
// that it has just given.
#include <sched.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>

#include "comm/gloo/epoll_backoff.hpp"

namespace dslaunch::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Whoever reads what there is takes longer between two questions.
constexpr std::chrono::microseconds kTooSoon{5};
constexpr int kMaxInARow = 2;

std::atomic<bool> was_asked{false};

// The answers of one thread to its last questions.
class Answers {
 public:
  bool repeats(const epoll_event& first) {
    const auto now = Clock::now();
    const bool again = first.data.u64 == last_ && now - when_ < kTooSoon;
    last_ = first.data.u64;
    when_ = now;
    in_a_row_ = again ? in_a_row_ + 1 : 0;
    return in_a_row_ > kMaxInARow;
  }

 private:
  uint64_t last_ = 0;
  Clock::time_point when_;
  int in_a_row_ = 0;
};

}  // namespace

bool polls_patiently() {
  return was_asked;
}

}  // namespace dslaunch::comm

extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events, int most,
                                                                 int timeout_ms) {
  using namespace dslaunch::comm;
  was_asked = true;
  static thread_local Answers answers;
  const int count = ::epoll_pwait(epoll, events, most, timeout_ms, nullptr);
  if (count > 0 && answers.repeats(events[0])) ::sched_yield();
  return count;
}
