#include "ports/socket_table.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

// Other programs of this machine may use the same port on another address.
std::vector<Socket> of_address(std::vector<Socket> sockets, const std::string& address) {
  std::erase_if(sockets, [&](const Socket& socket) { return socket.address != address; });
  return sockets;
}

bool has_inode(const std::vector<Socket>& sockets, uint64_t inode) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const Socket& socket) { return socket.inode == inode; });
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
    CHECK(of_address(sockets_from_proc(port), address) == expected);
    if (auto sockets = sockets_from_netlink(port)) CHECK(of_address(*sockets, address) == expected);
    CHECK(of_address(sockets_on(port), address) == expected);
  }
}

TEST_CASE("a closed socket is not found", "[ports][socket_table]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("127.0.0.1", &port);
  const uint64_t inode = inode_of(listener.get());
  listener.reset();
  CHECK_FALSE(has_inode(sockets_on(port), inode));
  CHECK_FALSE(has_inode(sockets_from_proc(port), inode));
}
