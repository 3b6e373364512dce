// What begins before the initializers of LibTorch's libraries (driver_start.hpp).
#include "driver_start.hpp"

namespace {

// The sanitizers' own initializer may come later, and their threads need it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DSL_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DSL_IS_SANITIZED 1
#endif
#endif

#ifndef DSL_IS_SANITIZED
void start_early(int argc, char** argv, char**) {
  dslaunch::worker::begin_driver_start(argc, argv);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_initializers)(int, char**, char**) = start_early;
#endif

}  // namespace
