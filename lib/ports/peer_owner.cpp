#include "ports/peer_owner.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "base/format.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::ports {
namespace {

struct Endpoint {
  int family = AF_UNSPEC;
  std::array<uint32_t, 4> words{};  // in network byte order; one word for IPv4
  uint16_t port = 0;                // likewise

  bool operator==(const Endpoint&) const = default;
};

struct ConnectedSocket {
  Endpoint local, remote;

  ConnectedSocket peer() const { return {remote, local}; }
};

// ::ffff:a.b.c.d is stored as a.b.c.d: the kernel finds sockets of both families by that form.
Endpoint endpoint_of(const sockaddr_storage& storage) {
  Endpoint out;
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    out = {AF_INET, {address.sin_addr.s_addr}, address.sin_port};
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    out.family = AF_INET6;
    out.port = address.sin6_port;
    std::memcpy(out.words.data(), &address.sin6_addr, sizeof out.words);
    if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) out = {AF_INET, {out.words[3]}, out.port};
  }
  return out;
}

std::optional<ConnectedSocket> socket_of(int fd) {
  sockaddr_storage local{}, remote{};
  socklen_t local_size = sizeof local, remote_size = sizeof remote;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_size) != 0) {
    return std::nullopt;
  }
  return ConnectedSocket{endpoint_of(local), endpoint_of(remote)};
}

PeerOwner owner_of(uint64_t inode, uid_t uid) {
  // Without an inode no process owns the socket: it waits for its last packets, and the kernel reports root.
  if (inode == 0) return {PeerOwner::Location::kGone, 0};
  return {PeerOwner::Location::kHere, uid};
}

struct DiagRequest {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

DiagRequest request_for(const ConnectedSocket& socket) {
  DiagRequest message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  message.request.sdiag_family = static_cast<uint8_t>(socket.local.family);
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = ~0u;
  auto& id = message.request.id;
  id.idiag_sport = socket.local.port;
  id.idiag_dport = socket.remote.port;
  std::memcpy(id.idiag_src, socket.local.words.data(), sizeof id.idiag_src);
  std::memcpy(id.idiag_dst, socket.remote.words.data(), sizeof id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return message;
}

// nullopt when the kernel does not know the socket or does not answer such queries; the reply is the same for both. For
// an unknown socket the kernel may return a socket that listens on the port.
std::optional<inet_diag_msg> ask_netlink(const ConnectedSocket& socket) {
  UniqueFd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return std::nullopt;
  DiagRequest message = request_for(socket);
  if (::send(netlink.get(), &message, sizeof message, 0) != static_cast<ssize_t>(sizeof message)) return std::nullopt;
  struct Answer {
    nlmsghdr header;
    inet_diag_msg entry;
    std::array<char, 4096> attributes;
  } answer{};
  // The kernel's answer is available when send returns.
  ssize_t received = ::recv(netlink.get(), &answer, sizeof answer, MSG_DONTWAIT);
  if (received < static_cast<ssize_t>(offsetof(Answer, attributes))) return std::nullopt;
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY || answer.entry.idiag_state == TCP_LISTEN) return std::nullopt;
  return answer.entry;
}

// As /proc prints it: 32-bit words in the machine's byte order, the port as a number.
std::string proc_text(const Endpoint& endpoint, bool as_ipv6) {
  std::array<uint32_t, 4> words = endpoint.words;
  if (as_ipv6 && endpoint.family == AF_INET) words = {0, 0, htonl(0xffff), endpoint.words[0]};
  std::string text;
  for (size_t i = 0; i < (as_ipv6 ? 4 : 1); ++i) text += fmt::format("{:08X}", words[i]);
  return text + fmt::format(":{:04X}", ntohs(endpoint.port));
}

std::optional<PeerOwner> find_in_proc(const char* path, const ConnectedSocket& socket, bool as_ipv6) {
  const std::string ends = proc_text(socket.local, as_ipv6) + " " + proc_text(socket.remote, as_ipv6);
  std::ifstream table(path);
  std::string line;
  while (std::getline(table, line)) {
    if (line.find(ends) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, timeout;
    uid_t uid = 0;
    uint64_t inode = 0;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    return owner_of(fields ? inode : 0, uid);
  }
  return std::nullopt;
}

bool is_connected(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

std::optional<PeerOwner> peer_owner_from_netlink(int fd) {
  auto socket = socket_of(fd);
  if (!socket) return std::nullopt;
  if (auto entry = ask_netlink(socket->peer())) return owner_of(entry->idiag_inode, entry->idiag_uid);
  // If the kernel knows our own end, it answers such queries, so it does not have the peer's end.
  return ask_netlink(*socket) ? std::optional(PeerOwner{}) : std::nullopt;
}

std::optional<PeerOwner> peer_owner_from_proc(int fd) {
  auto socket = socket_of(fd);
  if (!socket) return std::nullopt;
  const ConnectedSocket peer = socket->peer();
  if (peer.local.family == AF_INET) {
    if (auto found = find_in_proc("/proc/net/tcp", peer, false)) return found;
  }
  return find_in_proc("/proc/net/tcp6", peer, true);
}

PeerOwner owner_of_peer(int fd) {
  auto owner = peer_owner_from_netlink(fd);
  if (!owner) owner = peer_owner_from_proc(fd);
  PeerOwner answer = owner.value_or(PeerOwner{});
  // A peer that reset the connection no longer has a socket, wherever it was.
  if (answer.location == PeerOwner::Location::kElsewhere && !is_connected(fd))
    answer.location = PeerOwner::Location::kGone;
  return answer;
}

}  // namespace dslaunch::ports
