#include "rendezvous/own_address.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_addresses.hpp"
#include "base/unique_fd.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::rendezvous {

namespace {

// Connecting a datagram socket sends nothing; it only makes the kernel select a route.
std::string source_towards(const addrinfo& peer) {
  UniqueFd fd(::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), peer.ai_addr, peer.ai_addrlen) != 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return "";
  return numeric_address(reinterpret_cast<sockaddr*>(&own), size);
}

}  // namespace

std::vector<std::string> interface_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || (each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (each->ifa_addr->sa_family == AF_INET) addresses.push_back(numeric_address(each->ifa_addr, sizeof(sockaddr_in)));
    if (each->ifa_addr->sa_family != AF_INET6) continue;
    const auto* address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
      addresses.push_back(numeric_address(each->ifa_addr, sizeof *address));
  }
  return addresses;
}

std::string first_interface_address() {
  const auto addresses = interface_addresses();
  auto is_version_4 = [](const std::string& address) { return address.find(':') == std::string::npos; };
  auto chosen = std::find_if(addresses.begin(), addresses.end(), is_version_4);
  if (chosen == addresses.end()) chosen = addresses.begin();
  return chosen == addresses.end() ? std::string() : *chosen;
}

std::string own_address_towards(const std::string& peer, int num_nodes) {
  if (num_nodes <= 1) return "127.0.0.1";
  constexpr uint16_t kAnyPort = 9;
  const auto found = look_up_host(peer.c_str(), kAnyPort);
  std::string address;
  for (const addrinfo* each = found.ok() ? found->get() : nullptr; each && address.empty(); each = each->ai_next) {
    address = source_towards(*each);
  }
  if (address.empty() || is_loopback_address(address)) address = first_interface_address();
  if (!address.empty()) return address;
  // Several nodes may be names of one machine, which does not need a network.
  if (is_loopback_address(peer)) return peer;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("this host has no address towards '{}' (MASTER_ADDR) reachable from other hosts", peer));
}

}  // namespace dslaunch::rendezvous
