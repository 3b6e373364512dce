#include "launch/terminal/terminal.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

using namespace dslaunch;
using dslaunch::launch::Terminal;

namespace {

struct Pty {
  Pty() : master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(::grantpt(master.get()) == 0);
    REQUIRE(::unlockpt(master.get()) == 0);
    slave = UniqueFd(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(slave.valid());
    termios raw{};
    ::cfmakeraw(&raw);
    REQUIRE(::tcsetattr(slave.get(), TCSANOW, &raw) == 0);
  }

  UniqueFd master, slave;
};

std::string read_some(int fd) {
  char text[64];
  const ssize_t count = ::read(fd, text, sizeof text);
  return count > 0 ? std::string(text, static_cast<size_t>(count)) : "";
}

}  // namespace

TEST_CASE("a terminal without a reader does not block its writer", "[launch][terminal]") {
  const Pty pty;
  Terminal terminal(pty.slave.get());
  terminal.write(std::string(1U << 20, 'x'));  // more than any terminal holds
  CHECK(terminal.num_pending() > 0);
  CHECK(read_some(pty.master.get()).starts_with("xxxx"));
}

TEST_CASE("bytes written to a pty master arrive at its slave", "[launch][terminal]") {
  const Pty pty;
  Terminal terminal(pty.master.get());
  terminal.write("hello");
  CHECK(terminal.num_pending() == 0);
  CHECK(read_some(pty.slave.get()) == "hello");
}
