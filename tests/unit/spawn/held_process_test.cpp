#include "spawn/held_process.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "support/without_pidfd.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

// With descriptors and without, the same is true of a process that is held.
bool is_held_until_its_end() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGTERM, SIG_DFL);
    for (;;) ::pause();
  }
  const auto held = HeldProcess::hold(child);
  if (!held || held->has_ended() || held->identity().pid != child) return false;
  wait_for_an_end({&*held}, Deadline::after(30ms));
  if (held->has_ended() || !held->signal(SIGTERM)) return false;
  wait_for_an_end({&*held}, Deadline::after(10s));
  const bool ended = held->has_ended() && !HeldProcess::hold(child);  // nobody has reaped it yet
  ::waitpid(child, nullptr, 0);
  return ended && held->has_ended() && !held->signal(SIGTERM) && errno == ESRCH && !HeldProcess::hold(child);
}

}  // namespace

TEST_CASE("a process is held until its end", "[spawn][held_process]") {
  CHECK(is_held_until_its_end());
}

TEST_CASE("without pidfds a process is identified by its start time", "[spawn][held_process]") {
  CHECK(test::holds_without_pidfds(is_held_until_its_end));
}
