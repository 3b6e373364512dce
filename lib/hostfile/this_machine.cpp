#include "hostfile/this_machine.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/blocked_signals.hpp"
#include "base/host_addresses.hpp"
#include "base/host_name.hpp"
#include "base/wait_until.hpp"
#include "hostfile/plain_name.hpp"

namespace dslaunch::hostfile {
namespace {

// An address as 16 bytes; an IPv4 address is mapped into IPv6, so that both notations compare equal.
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

std::optional<Address> from_sockaddr(const sockaddr* address) {
  if (!address) return std::nullopt;
  if (address->sa_family == AF_INET) return from_v4(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  if (address->sa_family == AF_INET6) return from_v6(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return std::nullopt;
}

std::optional<Address> parse_address(const std::string& text) {
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return from_v4(v4);
  in6_addr v6;
  if (inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &v6) == 1) return from_v6(v6);
  return std::nullopt;
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
    if (from_sockaddr(at->ifa_addr) == address) return true;
  }
  return false;
}

// The name with its domain, for a host whose short name is ours.
bool is_own_full_name(const std::string& host, const std::string& own) {
  if (host.substr(0, host.find('.')) != own.substr(0, own.find('.'))) return false;
  const auto found = look_up_host(own.c_str(), 0, AI_CANONNAME);
  if (!found.ok()) return false;
  const char* full_name = (*found)->ai_canonname;
  return full_name && plain_name(full_name) == host;
}

bool resolves_to_us(const std::string& host) {
  const auto found = look_up_host(host.c_str(), 0);
  if (!found.ok()) return false;
  for (const addrinfo* at = found->get(); at; at = at->ai_next) {
    const auto address = from_sockaddr(at->ai_addr);
    if (address && is_own_address(*address)) return true;
  }
  return false;
}

std::string own_name() {
  return plain_name(host_name());
}

// The answer that needs no resolver; empty: unknown.
std::optional<bool> known_at_once(const std::string& name) {
  if (name.empty()) return false;
  if (name == "localhost" || name == "localhost.localdomain" || name.ends_with(".localhost")) return true;
  if (const auto address = parse_address(name)) return is_own_address(*address);
  std::string own = own_name();
  if (!own.empty() && (name == own || name == own.substr(0, own.find('.')))) return true;
  return std::nullopt;
}

bool resolver_says_us(const std::string& name) {
  std::string own = own_name();
  if (!own.empty() && name.find('.') != std::string::npos && is_own_full_name(name, own)) return true;
  return resolves_to_us(name);
}

// The names that need the resolver, shared by the resolver threads and the waiting thread. Owned by all of them,
// because a resolver thread may return long after the waiting thread has given up.
struct Lookups {
  std::function<bool(const std::string&)> ask;  // fixed, as are the names
  std::vector<std::string> names;

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  size_t next = 0, num_done = 0;
  std::vector<bool> is_us;
};

void answer_lookups(const std::shared_ptr<Lookups>& lookups) {
  std::unique_lock lock(lookups->mutex);
  while (lookups->next < lookups->names.size()) {
    size_t index = lookups->next++;
    lock.unlock();
    bool is_us = lookups->ask(lookups->names[index]);
    lock.lock();
    lookups->is_us[index] = is_us;
    ++lookups->num_done;
    lookups->changed.notify_all();
  }
}

void start_lookups(const std::shared_ptr<Lookups>& lookups) {
  constexpr size_t kMaxThreads = 128;
  size_t started = 0;
  try {
    const BlockedSignals blocked;
    for (; started < std::min(lookups->names.size(), kMaxThreads); ++started) {
      std::thread([lookups] { answer_lookups(lookups); }).detach();
    }
  } catch (const std::system_error&) {  // thread limit reached: fewer threads share the names
  }
  if (started == 0) answer_lookups(lookups);
}

std::vector<bool> wait_for(Lookups& lookups, const Deadline& deadline) {
  std::unique_lock lock(lookups.mutex);
  wait_until(lookups.changed, lock, deadline, [&] { return lookups.num_done == lookups.names.size(); });
  lookups.next = lookups.names.size();  // so that no thread starts another lookup
  return lookups.is_us;
}

}  // namespace

bool is_this_machine(const std::string& host) {
  std::string name = plain_name(host);
  auto known = known_at_once(name);
  return known ? *known : resolver_says_us(name);
}

std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline) {
  return which_are_this_machine(hosts, deadline, resolver_says_us);
}

std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline,
                                         std::function<bool(const std::string&)> resolves_to_us) {
  std::vector<bool> is_us(hosts.size());
  std::vector<size_t> places;  // indices in `hosts` of the names to look up
  auto lookups = std::make_shared<Lookups>();
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::string name = plain_name(hosts[i]);
    if (auto known = known_at_once(name)) {
      is_us[i] = *known;
    } else {
      places.push_back(i);
      lookups->names.push_back(std::move(name));
    }
  }
  if (places.empty()) return is_us;
  lookups->ask = std::move(resolves_to_us);
  lookups->is_us.resize(places.size());
  start_lookups(lookups);
  std::vector<bool> answers = wait_for(*lookups, deadline);
  for (size_t k = 0; k < places.size(); ++k) is_us[places[k]] = answers[k];
  return is_us;
}

}  // namespace dslaunch::hostfile
