// A system that refuses threads, for tests of who starts several: stands before pthread_create in the whole program, so
// include it in one file of a program only.
#pragma once
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace dslaunch {

inline std::atomic<int> num_threads_granted{-1};  // how many more; below 0: any number

// While it is there, `granted` threads are started and all others refused.
struct RefusedThreads {
  explicit RefusedThreads(int granted) { num_threads_granted = granted; }
  ~RefusedThreads() { num_threads_granted = -1; }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;
};

}  // namespace dslaunch

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  if (dslaunch::num_threads_granted == 0) return EAGAIN;
  if (dslaunch::num_threads_granted > 0) --dslaunch::num_threads_granted;
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}
