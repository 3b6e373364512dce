// Handles running out of memory where no code can catch it: LibTorch's own initializers allocate before main, and
// threads of libraries do at any time. Elsewhere the commands' errors are more specific (main.cpp).
#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <string_view>
#include <typeinfo>

#include "base/exit_code.hpp"

namespace {

std::terminate_handler default_handler = nullptr;

constexpr std::string_view kOutOfMemory =
    "error: out of memory: the system failed to allocate memory. Is there a limit, as of ulimit -v? LibTorch alone "
    "needs half a gigabyte of address space\n";

// Must not allocate.
[[noreturn]] void end_without_memory() {
  const std::type_info* thrown = abi::__cxa_current_exception_type();
  if (thrown != nullptr && *thrown == typeid(std::bad_alloc)) {
    [[maybe_unused]] auto written = ::write(STDERR_FILENO, kOutOfMemory.data(), kOutOfMemory.size());
    ::_exit(dslaunch::to_int(dslaunch::ExitCode::kUnavailable));
  }
  default_handler();
  __builtin_unreachable();
}

void install_terminate_handler() {
  default_handler = std::set_terminate(end_without_memory);
}

// Runs before the initializers of any shared library.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_initializers)() = install_terminate_handler;

}  // namespace
