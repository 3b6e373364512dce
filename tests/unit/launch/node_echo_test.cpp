#include "launch/node_echo.hpp"

#include <fcntl.h>

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
  StalledFile() : fd(::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {
    thread.ask(0, [gate = gate_.get_future().share()] {
      gate.wait();
      return std::string();
    });
  }
  void go_on() { gate_.set_value(); }
  std::string content() const { return test::read_file(folder_ / "out"); }

 private:
  test::TempDir folder_;
  std::promise<void> gate_;

 public:
  UniqueFd fd;
  FileThread thread;
};

}  // namespace

TEST_CASE("a node's own output that is a file holds up its ranks, not its agent", "[launch][node_echo]") {
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

TEST_CASE("a signal spares a node's file that stands still", "[launch][node_echo]") {
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
