#include "spawn/link_thread.hpp"

#include <pthread.h>

#include <memory>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"

namespace dslaunch::spawn {
namespace {

constexpr size_t kStackBytes = 512 << 10;

void* run(void* argument) {
  std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

void start_link_thread(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  int error = 0;
  {
    const BlockedSignals blocked;
    error = ::pthread_create(&thread, &attributes, run, owned.get());
  }
  ::pthread_attr_destroy(&attributes);
  if (error != 0) {
    throw SystemError("start", "a thread (a limit of this user, ulimit -u, or of the container, pids.max, is reached)",
                      error, ExitCode::kUnavailable);
  }
  owned.release();
}

}  // namespace dslaunch::spawn
