// A system that gives no descriptors for processes, as older container runtimes do not.
#pragma once
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

#include "support/refused_system_call.hpp"

namespace dslaunch::test {

template <class Body>
bool holds_without_pidfds(Body&& body) {
  return holds_without(SYS_pidfd_open, EPERM, std::forward<Body>(body));
}

}  // namespace dslaunch::test
