#include "ports/connect_first.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <deque>

using namespace dslaunch;
using namespace std::chrono_literals;

namespace {

sockaddr_in on_loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// A port of this machine on which a listener takes every connection, none at all, or nobody listens.
class Port {
 public:
  enum Kind { kAnswers, kSilent, kRefuses };
  explicit Port(Kind kind) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = on_loopback(0);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_.get(), plain, size) == 0);
    REQUIRE(::getsockname(listener_.get(), plain, &size) == 0);
    number_ = ntohs(address.sin_port);
    if (kind != kRefuses) REQUIRE(::listen(listener_.get(), kind == kSilent ? 0 : 8) == 0);
    if (kind != kSilent) return;
    // A queue that is full: further ones are left without an answer.
    filler_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(filler_.get(), plain, size) == 0);
  }
  uint16_t number() const { return number_; }

 private:
  UniqueFd listener_, filler_;
  uint16_t number_ = 0;
};

// As getaddrinfo(3) gives the addresses of a name.
class Addresses {
 public:
  explicit Addresses(const std::vector<const Port*>& ports) {
    for (const Port* port : ports) {
      addrinfo& next = list_.emplace_back();
      next.ai_family = AF_INET;
      next.ai_addr = reinterpret_cast<sockaddr*>(&where_.emplace_back(on_loopback(port->number())));
      next.ai_addrlen = sizeof(sockaddr_in);
      if (list_.size() > 1) list_[list_.size() - 2].ai_next = &next;
    }
  }
  const addrinfo* list() const { return &list_.front(); }
  const addrinfo* at(size_t index) const { return &list_[index]; }

 private:
  std::deque<addrinfo> list_;  // never moved
  std::deque<sockaddr_in> where_;
};

ports::FirstConnection connect(const Addresses& addresses, std::chrono::milliseconds time) {
  return ports::connect_first(addresses.list(), Deadline::after(time), [](std::vector<pollfd>& polls, Deadline until) {
    ::poll(polls.data(), polls.size(), static_cast<int>(until.left().count()));
  });
}

uint16_t peer_of(const UniqueFd& fd) {
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  REQUIRE(::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0);
  return ntohs(peer.sin_port);
}

}  // namespace

TEST_CASE("a silent address does not prevent the next one", "[ports][connect_first]") {
  Port silent(Port::kSilent), also_silent(Port::kSilent), refuses(Port::kRefuses), answers(Port::kAnswers);
  for (const auto& before :
       std::vector<std::vector<const Port*>>{{}, {&silent}, {&refuses}, {&silent, &also_silent}, {&silent, &refuses}}) {
    auto all = before;
    all.push_back(&answers);
    auto connection = connect(Addresses(all), 60s);
    REQUIRE(connection.fd.valid());
    CHECK(peer_of(connection.fd) == answers.number());
  }
}

TEST_CASE("reports every address that does not answer, silent ones last", "[ports][connect_first]") {
  Port silent(Port::kSilent), refuses(Port::kRefuses);
  Addresses addresses({&silent, &refuses});
  auto connection = connect(addresses, 3s);
  CHECK_FALSE(connection.fd.valid());
  REQUIRE(connection.failures.size() == 2);
  CHECK((connection.failures[0].address == addresses.at(1) && connection.failures[0].error_number == ECONNREFUSED));
  CHECK((connection.failures[1].address == addresses.at(0) && connection.failures[1].error_number == ETIMEDOUT));
}

TEST_CASE("a refused connection is not waited for", "[ports][connect_first]") {
  Port refuses(Port::kRefuses);
  auto connection = connect(Addresses({&refuses, &refuses}), 1h);
  CHECK_FALSE(connection.fd.valid());
  CHECK(connection.failures.size() == 2);
}
