#include "launch/plan/master_address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "ports/held_port.hpp"

namespace dslaunch::launch {
namespace {

constexpr size_t kMaxName = 255;

bool is_ipv6_address(const std::string& address) {
  in6_addr ignored;
  return ::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &ignored) == 1;
}

bool in_name(unsigned char c) {
  return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
}

// Empty: no error.
std::string describe_error(const std::string& address) {
  if (address.find("://") != std::string::npos) return "expected a host name, got a URL";
  if (address.starts_with('[')) return "write an IPv6 address without brackets, and the port in --master_port";
  const auto num_colons = std::count(address.begin(), address.end(), ':');
  if (num_colons == 1) return "the port has its own option: --master_addr HOST --master_port PORT";
  if (num_colons > 1) return is_ipv6_address(address) ? "" : "not an IPv6 address";
  if (address.size() > kMaxName) return fmt::format("too long for a host name ({} characters)", kMaxName);
  if (std::all_of(address.begin(), address.end(), in_name)) return "";
  return "not a host name or address: only letters, digits, '.', '-' and '_' are allowed";
}

}  // namespace

void check_spelling_of_master_address(const std::string& address) {
  std::string wrong = describe_error(address);
  if (wrong.empty()) return;
  throw UserError(ExitCode::kUsage, fmt::format("--master_addr '{}': {}", printable(address), wrong));
}

void check_master_address_is_here(const std::string& address) {
  try {
    ports::hold_port(address, 0);
  } catch (const UserError& error) {
    throw UserError(error.code(), fmt::format("--master_addr {}: {}; all ranks run on this machine: omit the option, "
                                              "or give a name or an address of this machine",
                                              address, error.what()));
  }
}

}  // namespace dslaunch::launch
