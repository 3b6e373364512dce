#include "launch/agent/node_echo.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <future>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

// A file that stands still until go_on(), with a thread of its own.
class StalledFile {
 public:
  StalledFile() : fd(::open((dir_ / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {
    thread.submit(0, [gate = gate_.get_future().share()] {
      gate.wait();
      return std::string();
    });
  }
  void go_on() { gate_.set_value(); }
  std::string content() const { return test::read_file(dir_ / "out"); }

 private:
  test::TempDir dir_;
  std::promise<void> gate_;

 public:
  UniqueFd fd;
  FileThread thread;
};

}  // namespace

TEST_CASE("a stalled output file of a node blocks its ranks, not its agent", "[launch][node_echo]") {
  StalledFile file;
  SignalInbox signals{SIGINT};
  NodeEcho echo(file.thread, file.fd.get(), -1);
  const std::string part(1U << 20, 'x');
  for (int i = 0; i < 16; ++i) echo.write(Stream::kOut, part);  // comes back at once
  CHECK_FALSE(echo.has_room());
  CHECK(echo.has_lost());
  echo.drain(signals, Deadline::after(0ms));
  CHECK(file.content().empty());

  file.go_on();
  echo.drain(signals, Deadline::after(10s));
  CHECK(echo.has_room());
  CHECK_FALSE(echo.has_lost());
  CHECK(file.content().size() == 16 * part.size());
}

TEST_CASE("both streams in one pipe keep their lines whole and in order", "[launch][node_echo]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd read_end(ends[0]), out(ends[1]), err(::dup(ends[1]));
  FileThread thread;
  SignalInbox signals{SIGINT};
  NodeEcho echo(thread, out.get(), err.get());
  std::string expected, got;
  for (int i = 0; i < 400; ++i) {  // many times what a pipe holds
    const std::string line = std::string(999, i % 2 == 0 ? 'o' : 'e') + "\n";
    echo.write(i % 2 == 0 ? Stream::kOut : Stream::kErr, line);
    expected += line;
  }
  while (got.size() < expected.size()) {
    char part[777];
    const ssize_t count = ::read(read_end.get(), part, sizeof part);
    REQUIRE(count > 0);
    got.append(part, static_cast<size_t>(count));
    echo.poll_once();
  }
  CHECK(got == expected);
}

TEST_CASE("a signal ends the wait for a node's stalled file", "[launch][node_echo]") {
  StalledFile file;
  SignalInbox signals{SIGINT};
  NodeEcho echo(file.thread, -1, file.fd.get());
  echo.write(Stream::kErr, "word\n");
  ::kill(::getpid(), SIGINT);
  echo.drain(signals, Deadline::never());
  CHECK(echo.has_lost());
  file.go_on();
  echo.drain(signals, Deadline::never());
  CHECK(file.content() == "word\n");
}
