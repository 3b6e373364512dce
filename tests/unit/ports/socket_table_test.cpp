#include "ports/socket_table.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "unit/ports/holder_process.hpp"

using namespace dslaunch;
using namespace dslaunch::ports;

namespace {

uint64_t inode_of(int fd) {
  struct stat info;
  REQUIRE(fstat(fd, &info) == 0);
  return info.st_ino;
}

}  // namespace

// One body for both sources: what fstat says about our own socket is the oracle.
TEST_CASE("both sources find a listening socket with its inode and owner", "[ports][socket_table]") {
  for (const char* address : {"127.0.0.1", "127.0.0.9", "0.0.0.0", "::1", "::"}) {
    uint16_t port = 0;
    UniqueFd listener = listen_on(address, &port);
    if (!listener.valid()) continue;  // no IPv6 on this machine
    std::vector<Socket> expected{{address, Socket::State::kListening, inode_of(listener.get()), getuid()}};
    CAPTURE(address);
    CHECK(sockets_from_proc(port) == expected);
    if (auto sockets = sockets_from_netlink(port)) CHECK(*sockets == expected);
    CHECK(sockets_on(port) == expected);
  }
}

TEST_CASE("a port that nobody uses has no sockets", "[ports][socket_table]") {
  uint16_t port = 0;
  listen_on("127.0.0.1", &port).reset();
  CHECK(sockets_on(port).empty());
  CHECK(sockets_from_proc(port).empty());
}
