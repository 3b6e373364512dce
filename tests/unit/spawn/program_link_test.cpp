#include "spawn/program/program_link.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "spawn/local/local_link.hpp"
#include "support/temp_dir.hpp"
#include "support/without_pidfd.hpp"
#include "unit/spawn/link_ends.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

ProgramLinkOptions capturing() {
  ProgramLinkOptions options;
  options.errors = ProgramLinkOptions::Errors::kCapture;
  options.explain = [](const ExitCause& cause, const std::string& errors) {
    return LinkFailure{.phase = "start", .text = describe(cause) + ": " + errors};
  };
  return options;
}

std::unique_ptr<ProgramLink> shell(const std::string& script, ProgramLinkOptions options = capturing()) {
  std::signal(SIGPIPE, SIG_IGN);
  return open_program_link({"sh", "-c", script}, std::move(options));
}

}  // namespace

TEST_CASE("a program's streams are the link's ends", "[spawn][program_link]") {
  auto link = shell("cat");
  CHECK(converse(*link, "what is written at once is kept") == "what is written at once is kept");
  CHECK(link->wait(Deadline::after(10s)));
  CHECK_FALSE(link->failure());
  CHECK(link->cause() == ExitCause{});
}

TEST_CASE("the failure is available when the output ends", "[spawn][program_link]") {
  // Not after a wait: the program closes its output long before it says why and ends.
  for (int round = 0; round < 20; ++round) {
    auto link = shell("exec >&-; echo why >&2; exit 3");
    converse(*link);
    auto failure = link->failure();
    REQUIRE(failure);
    CHECK(failure->text == "exit code 3: why\n");
  }
}

TEST_CASE("a program that cannot be started is a failure of the link", "[spawn][program_link]") {
  auto link = open_program_link({"/no/such/program"}, capturing());
  CHECK(converse(*link).empty());
  CHECK(link->failure()->text.find("/no/such/program") != std::string::npos);
  CHECK(link->cause()->kind == ExitCause::Kind::kNotStarted);
  CHECK_FALSE(link->pid());
}

TEST_CASE("only the end of a long standard error is kept", "[spawn][program_link]") {
  auto link = shell("seq 1 200000 >&2; exit 1");
  converse(*link);
  CHECK(link->errors().size() == 8192);
  CHECK(link->errors().ends_with("199999\n200000\n"));
}

TEST_CASE("a grandchild that holds standard error does not hold up the end", "[spawn][program_link]") {
  auto link = shell("sleep 1000 >&- <&- & echo $!; exit 2");
  pid_t grandchild = std::stoi(converse(*link));
  CHECK(link->cause()->number == 2);
  ::kill(grandchild, SIGKILL);
}

TEST_CASE("a slow reader gets everything", "[spawn][program_link]") {
  auto link = shell("head -c 8000000 /dev/zero");
  LinkEnds ends = link->take_ends();
  size_t total = 0;
  char buffer[333];
  for (;;) {
    pollfd poll{ends.from_agent.get(), POLLIN, 0};
    ::poll(&poll, 1, -1);
    ssize_t got = ::read(ends.from_agent.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    total += static_cast<size_t>(got);
  }
  CHECK(total == 8000000);
}

TEST_CASE("a program that is started again finds its input untouched", "[spawn][program_link]") {
  test::TempDir dir;
  std::string count = dir / "count";
  ProgramLinkOptions options = capturing();
  options.again = [](const ExitCause& cause, const std::string& errors) -> std::optional<std::chrono::milliseconds> {
    if (cause.number != 255 || errors != "dropped\n") return std::nullopt;
    return 1ms;
  };
  auto link = shell(
      "echo x >>" + count + "; test $(wc -l <" + count + ") -ge 3 || { echo dropped >&2; exit 255; }; cat", options);
  CHECK(converse(*link, "kept") == "kept");
  CHECK_FALSE(link->failure());
}

TEST_CASE("ending a link ends its program's whole group, without a failure", "[spawn][program_link]") {
  auto link = shell("sleep 1000 & echo $!; wait");
  LinkEnds ends = link->take_ends();
  std::string line;
  char byte = 0;
  while (byte != '\n') {
    pollfd poll{ends.from_agent.get(), POLLIN, 0};
    ::poll(&poll, 1, -1);
    if (::read(ends.from_agent.get(), &byte, 1) == 1) line += byte;
  }
  link->kill();
  CHECK(link->wait(Deadline::after(10s)));
  CHECK_FALSE(link->failure());
  CHECK(link->cause()->number == SIGKILL);
  std::string letter;
  Deadline soon = Deadline::after(5s);  // the group is signalled at once, each dies in its own time
  while (letter != "gone" && letter != "Z" && !soon.passed()) {
    std::ifstream state("/proc/" + std::to_string(std::stoi(line)) + "/stat");
    std::string pid, name;
    if (!(state >> pid >> name >> letter)) letter = "gone";
  }
  CHECK((letter == "gone" || letter == "Z"));
}

TEST_CASE("a pause before another start ends with the link", "[spawn][program_link]") {
  ProgramLinkOptions options = capturing();
  options.again = [](const ExitCause&, const std::string&) { return std::chrono::milliseconds(1h); };
  auto link = shell("exit 1", options);
  CHECK(link->pid().value_or(1) > 0);
  link->kill();
  CHECK(link->wait(Deadline::after(10s)));
}

TEST_CASE("the local agent's death is reported with its cause", "[spawn][local_link]") {
  auto link = open_local_link({"/bin/sh", "-c", "kill -SEGV $$"});
  converse(*link);
  CHECK(link->failure()->phase == "connection");
  CHECK(link->failure()->text.find("SIGSEGV") != std::string::npos);
}

TEST_CASE("a link works without pidfds", "[spawn][program_link]") {
  CHECK(test::holds_without_pidfds([] {
    ProgramLinkOptions options = capturing();
    options.die_with_us = true;
    auto link = shell("echo up; exec sleep 1000", options);
    LinkEnds ends = link->take_ends();
    pollfd up{ends.from_agent.get(), POLLIN, 0};
    ::poll(&up, 1, -1);
    if (link->failure() || link->wait(Deadline::after(50ms))) return false;
    link->kill();
    return link->wait(Deadline::after(10s)) && link->cause()->number == SIGKILL;
  }));
  CHECK(test::holds_without_pidfds([] {
    auto link = shell("echo why >&2; exit 3");
    converse(*link);
    return link->failure()->text == "exit code 3: why\n";
  }));
}
