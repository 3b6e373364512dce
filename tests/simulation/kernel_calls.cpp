// The system calls of programs that run in a simulated world. The linker sends the calls of this test program here
// (--wrap, CMakeLists.txt); those that do not concern the world go on to the system.
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <string_view>
#include <vector>

#include "launch/supervisor/job_lifecycle.hpp"
#include "simulation/simulation.hpp"

using dslaunch::simulation::World;

namespace {

bool runs_in_world() {
  return World::exists() && World::current().in_program();
}

bool is_simulated(int fd) {
  return fd >= World::kFirstDescriptor && World::exists();
}

// Deadlines are computed from the clock before they are compared: it must be far from its limits.
constexpr int64_t kStart = int64_t{1'000'000} * 1'000'000'000;

}  // namespace

extern "C" {

int64_t __real__ZNSt6chrono3_V212steady_clock3nowEv();
int __real_poll(pollfd* polls, nfds_t count, int timeout);
ssize_t __real_read(int fd, void* into, size_t most);
ssize_t __real_write(int fd, const void* from, size_t length);
int __real_close(int fd);
int __real_fcntl(int fd, int command, long argument);
pid_t __real_getpid();

// std::chrono::steady_clock::now(), whose result is one integer.
int64_t __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  if (!World::exists()) return __real__ZNSt6chrono3_V212steady_clock3nowEv();
  return kStart + World::current().clock.now().count();
}

int __wrap_poll(pollfd* polls, nfds_t count, int timeout) {
  if (!runs_in_world()) return __real_poll(polls, count, timeout);
  std::vector<pollfd> copy(polls, polls + count);
  const auto limit = std::chrono::milliseconds(timeout);
  const int num_ready = World::current().poll(copy, timeout < 0 ? std::nullopt : std::optional(limit));
  for (nfds_t i = 0; i < count; ++i) polls[i].revents = copy[i].revents;
  return num_ready;
}

ssize_t __wrap_read(int fd, void* into, size_t most) {
  return is_simulated(fd) ? World::current().read(fd, static_cast<char*>(into), most) : __real_read(fd, into, most);
}

ssize_t __wrap_write(int fd, const void* from, size_t length) {
  const std::string_view bytes(static_cast<const char*>(from), length);
  if (is_simulated(fd)) return World::current().write(fd, bytes);
  if (!runs_in_world() || fd != STDERR_FILENO) return __real_write(fd, from, length);
  if (World::current().self().is_alive)
    World::current().note(World::current().self().name + " prints: " + std::string(bytes));
  return static_cast<ssize_t>(length);
}

int __wrap_close(int fd) {
  if (!is_simulated(fd)) return __real_close(fd);
  World::current().close(fd);
  return 0;
}

int __wrap_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return is_simulated(fd) ? 0 : __real_fcntl(fd, command, argument);
}

pid_t __wrap_getpid() {
  return runs_in_world() ? World::current().self().pid : __real_getpid();
}

// JobLifecycle::record_agent_error(), for a planted bug.
void __real__ZN8dslaunch6launch12JobLifecycle18record_agent_errorEi(dslaunch::launch::JobLifecycle* self,
                                                                    int exit_code);
void __wrap__ZN8dslaunch6launch12JobLifecycle18record_agent_errorEi(dslaunch::launch::JobLifecycle* self,
                                                                    int exit_code) {
  using namespace dslaunch::simulation;
  if (Simulation::current().bug == PlantedBug::kLateHostsAreIgnored && !self->end_not_begun()) return;
  __real__ZN8dslaunch6launch12JobLifecycle18record_agent_errorEi(self, exit_code);
}

}  // extern "C"
