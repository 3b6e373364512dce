#include "base/host_addresses.hpp"

#include <netdb.h>
#include <sys/socket.h>

namespace dslaunch {

void FreeAddresses::operator()(addrinfo* list) const {
  ::freeaddrinfo(list);
}

Result<AddressList> look_up_host(const char* name, uint16_t port, int flags) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  // No service where no port is asked for: with a service, glibc takes the name "*" for no name.
  const std::string service = std::to_string(port);
  if (int error = ::getaddrinfo(name, name && port == 0 ? nullptr : service.c_str(), &hints, &list); error != 0) {
    return Failure{::gai_strerror(error)};
  }
  return AddressList(list);
}

std::string numeric_address(const sockaddr* address, size_t size) {
  char text[NI_MAXHOST] = {};
  const auto length = static_cast<socklen_t>(size);
  return ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace dslaunch
