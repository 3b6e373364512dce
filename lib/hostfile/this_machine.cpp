#include "hostfile/this_machine.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>
#include <vector>

namespace dslaunch::hostfile {
namespace {

// An address as 16 bytes; an IPv4 one is mapped into IPv6, so that both spellings compare equal.
using Address = std::array<uint8_t, 16>;

Address from_v4(const in_addr& v4) {
  Address out{};
  out[10] = out[11] = 0xff;
  std::memcpy(out.data() + 12, &v4, 4);
  return out;
}

Address from_v6(const in6_addr& v6) {
  Address out;
  std::memcpy(out.data(), &v6, 16);
  return out;
}

bool from_sockaddr(const sockaddr* address, Address& out) {
  if (!address) return false;
  if (address->sa_family == AF_INET) {
    out = from_v4(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
    return true;
  }
  if (address->sa_family == AF_INET6) {
    out = from_v6(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
    return true;
  }
  return false;
}

bool parse_address(const std::string& text, Address& out) {
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    out = from_v4(v4);
    return true;
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &v6) == 1) {
    out = from_v6(v6);
    return true;
  }
  return false;
}

bool is_loopback(const Address& address) {
  if (address == from_v6(in6addr_loopback)) return true;
  in_addr any{};
  Address mapped = from_v4(any);
  return std::equal(mapped.begin(), mapped.begin() + 12, address.begin()) && address[12] == 127;
}

bool is_own_address(const Address& address) {
  if (is_loopback(address)) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    Address own;
    if (from_sockaddr(at->ifa_addr, own) && own == address) return true;
  }
  return false;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
  return AddressList(list, &freeaddrinfo);
}

// The name with its domain, for a host whose short name is ours.
bool is_own_full_name(const std::string& host, const std::string& own) {
  if (host.substr(0, host.find('.')) != own.substr(0, own.find('.'))) return false;
  AddressList list = look_up(own, AI_CANONNAME);
  return list && list->ai_canonname && lower(list->ai_canonname) == host;
}

bool resolves_to_us(const std::string& host) {
  AddressList list = look_up(host, 0);
  for (const addrinfo* at = list.get(); at; at = at->ai_next) {
    Address address;
    if (from_sockaddr(at->ai_addr, address) && is_own_address(address)) return true;
  }
  return false;
}

}  // namespace

bool is_this_machine(const std::string& host) {
  std::string name = lower(host);
  if (name.ends_with('.')) name.pop_back();
  if (name.empty()) return false;
  if (name == "localhost" || name == "localhost.localdomain" || name.ends_with(".localhost")) return true;
  Address address;
  if (parse_address(name, address)) return is_own_address(address);
  char buffer[256] = {};
  if (gethostname(buffer, sizeof(buffer) - 1) == 0 && buffer[0] != '\0') {
    std::string own = lower(buffer);
    if (name == own || name == own.substr(0, own.find('.'))) return true;
    if (name.find('.') != std::string::npos && is_own_full_name(name, own)) return true;
  }
  return resolves_to_us(name);
}

}  // namespace dslaunch::hostfile
