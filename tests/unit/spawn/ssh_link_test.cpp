// Both ways to a real sshd, and what they say when it does not work.
#include "spawn/ssh/ssh_link.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>

#include "unit/spawn/link_ends.hpp"
#include "unit/spawn/sshd.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

bool skipped() {
  std::signal(SIGPIPE, SIG_IGN);
  if (Sshd::available()) return false;
  WARN("skipped: needs root and Debian's openssh-server");
  return true;
}

SshTarget target_of(const Sshd& sshd) {
  return {.host = "127.0.0.1", .user = "", .port = sshd.port()};
}

// Both backends answer the same; the program gets the test's home by options, since OpenSSH does not ask HOME.
SshOptions with_libssh() {
  return {};
}

struct Outcome {
  std::string output;
  std::optional<LinkFailure> failure;
  std::optional<ExitCause> cause;
};

Outcome run(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options,
            std::string_view input = {}) {
  auto link = open_ssh_link(target, argv, options);
  Outcome outcome;
  outcome.output = converse(*link, input);
  outcome.failure = link->failure();
  outcome.cause = link->cause();
  INFO((outcome.failure ? outcome.failure->text : "no failure"));
  CHECK(link->wait(Deadline::after(5s)));
  return outcome;
}

}  // namespace

TEST_CASE("a command runs on the other side", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto outcome = run(target_of(sshd), {"/bin/cat"}, with_libssh(), "hello");
  if (outcome.failure) WARN(outcome.failure->text);
  CHECK(outcome.output == "hello");
  CHECK(outcome.cause == ExitCause{});
}
