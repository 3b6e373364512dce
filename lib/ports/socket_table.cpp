#include "ports/socket_table.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/unique_fd.hpp"

namespace dslaunch::ports {
namespace {

// Since kernel 6.8: bound to the port, neither listening nor connected.
constexpr uint32_t kBoundInactive = 13;
constexpr timeval kAnswerTimeout{2, 0};

Socket::State classify(uint32_t tcp_state, uint64_t inode) {
  if (inode == 0 || tcp_state == TCP_TIME_WAIT) return Socket::State::kClosing;
  return tcp_state == TCP_LISTEN ? Socket::State::kListening : Socket::State::kConnected;
}

std::string format_address(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes, text, sizeof(text));
  return text;
}

bool send_dump_request(int fd, uint8_t family) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } message{};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = family;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = (1u << (kBoundInactive + 1)) - 1;
  return send(fd, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message));
}

void append_if_on_port(const nlmsghdr* header, uint16_t port, std::vector<Socket>& out) {
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return;
  inet_diag_msg entry;
  std::memcpy(&entry, NLMSG_DATA(header), sizeof(entry));
  if (ntohs(entry.id.idiag_sport) != port) return;
  out.push_back({format_address(entry.idiag_family, entry.id.idiag_src), classify(entry.idiag_state, entry.idiag_inode),
                 entry.idiag_state == TCP_TIME_WAIT ? 0 : entry.idiag_inode, entry.idiag_uid});
}

// Reads one dump to its end. Returns false when the kernel refuses or the answer is incomplete.
bool read_dump(int fd, uint16_t port, std::vector<Socket>& out) {
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  while (true) {
    ssize_t received = recv(fd, buffer.data(), buffer.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    size_t left = static_cast<size_t>(received);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return true;
      if (header->nlmsg_type == NLMSG_ERROR) return false;
      append_if_on_port(header, port, out);
    }
  }
}

// /proc prints an address as 32-bit hexadecimal words, each in the machine's byte order.
std::string address_from_proc(const std::string& hex) {
  std::array<uint32_t, 4> words{};
  size_t count = hex.size() / 8;
  if (count != 1 && count != 4) return {};
  for (size_t i = 0; i < count; ++i) {
    words[i] = static_cast<uint32_t>(std::stoul(hex.substr(i * 8, 8), nullptr, 16));
  }
  return format_address(count == 1 ? AF_INET : AF_INET6, words.data());
}

void append_from_proc(const char* path, uint16_t port, std::vector<Socket>& out) {
  std::ifstream table(path);
  std::string line;
  std::getline(table, line);  // the header line
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, timeout;
    uid_t uid = 0;
    uint64_t inode = 0;
    if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode)) {
      continue;
    }
    size_t colon = local.find(':');
    if (colon == std::string::npos || std::stoul(local.substr(colon + 1), nullptr, 16) != port) continue;
    out.push_back({address_from_proc(local.substr(0, colon)),
                   classify(static_cast<uint32_t>(std::stoul(state, nullptr, 16)), inode), inode, uid});
  }
}

}  // namespace

std::optional<std::vector<Socket>> sockets_from_netlink(uint16_t port) {
  UniqueFd fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd.valid()) return std::nullopt;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout));
  std::vector<Socket> out;
  for (uint8_t family : {AF_INET, AF_INET6}) {
    if (!send_dump_request(fd.get(), family) || !read_dump(fd.get(), port, out)) return std::nullopt;
  }
  return out;
}

std::vector<Socket> sockets_from_proc(uint16_t port) {
  std::vector<Socket> out;
  append_from_proc("/proc/net/tcp", port, out);
  append_from_proc("/proc/net/tcp6", port, out);
  return out;
}

std::vector<Socket> sockets_on(uint16_t port) {
  if (auto sockets = sockets_from_netlink(port)) return *sockets;
  return sockets_from_proc(port);
}

}  // namespace dslaunch::ports
