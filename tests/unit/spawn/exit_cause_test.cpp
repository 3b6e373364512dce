#include "spawn/exit_cause.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

using namespace dslaunch::spawn;

// The oracle: a real child and the kernel's own status.
template <class Body>
static int status_of(Body body) {
  pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST_CASE("an exit code is kept as it is", "[spawn][exit_cause]") {
  for (int code : {0, 1, 75, 255}) {
    auto cause = decode_wait_status(status_of([&] { ::_exit(code); }));
    CHECK(cause.kind == ExitCause::Kind::kExited);
    CHECK(cause.shell_code() == code);
    CHECK(cause.success() == (code == 0));
  }
}

TEST_CASE("a signal gives its name and 128 plus its number", "[spawn][exit_cause]") {
  auto cause = decode_wait_status(status_of([] { ::raise(SIGKILL); }));
  CHECK(cause.kind == ExitCause::Kind::kSignaled);
  CHECK(cause.shell_code() == 137);
  CHECK(describe(cause) == "killed by SIGKILL (signal 9)");
  cause = decode_wait_status(status_of([] {
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  }));
  CHECK(cause.shell_code() == 143);
}

TEST_CASE("a hint follows the cause", "[spawn][exit_cause]") {
  ExitCause cause{.kind = ExitCause::Kind::kNotStarted, .number = 127, .hint = "no such program"};
  CHECK(describe(cause) == "not started: no such program");
  CHECK(cause.shell_code() == 127);
}

TEST_CASE("a signal without a name is a number", "[spawn][exit_cause]") {
  CHECK(signal_name(123) == "signal 123");
}
