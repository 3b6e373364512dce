// libgloo's event thread tries the lock of a readable connection. If another thread (a sender) holds the lock, libgloo
// calls epoll again, which returns immediately, and so on. With fewer free cores than threads this keeps the lock's
// holder from running: two ranks on two cores spent 3 of 5 seconds this way (200 steps of a small GPT).
//
// This epoll_wait takes precedence over libc's for libgloo and the libraries that it loads, and only for them: the
// module is opened with RTLD_LOCAL | RTLD_DEEPBIND. It behaves the same, but yields the core when its result repeats
// the previous one.
#include <sched.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace {

using Clock = std::chrono::steady_clock;

// A thread that reads the available data takes longer between two calls.
constexpr std::chrono::microseconds kRepeatInterval{5};
constexpr int kMaxRepeats = 2;

std::atomic<bool> was_called{false};

// The recent results of one thread's calls.
class ReadyEvents {
 public:
  bool repeats(const epoll_event& first) {
    const auto now = Clock::now();
    const bool is_repeat = first.data.u64 == last_ && now - when_ < kRepeatInterval;
    last_ = first.data.u64;
    when_ = now;
    num_repeats_ = is_repeat ? num_repeats_ + 1 : 0;
    return num_repeats_ > kMaxRepeats;
  }

 private:
  uint64_t last_ = 0;
  Clock::time_point when_;
  int num_repeats_ = 0;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events, int max_events,
                                                                 int timeout_ms) {
  was_called = true;
  static thread_local ReadyEvents ready_events;
  const int count = ::epoll_pwait(epoll, events, max_events, timeout_ms, nullptr);
  if (count > 0 && ready_events.repeats(events[0])) ::sched_yield();
  return count;
}

// For the test that libgloo polls through this epoll_wait rather than libc's. Any thread.
extern "C" __attribute__((visibility("default"))) bool dslaunch_gloo_backoff_is_active() {
  return was_called;
}
